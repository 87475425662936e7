//! The sources of the crates, without everything that is not code, and the names that each of them uses.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A file of library code, without comments, texts and tests.
pub struct Source {
    pub file: PathBuf,
    /// The path of the module that the file holds, from the crate's root.
    pub module: Vec<String>,
    pub code: String,
}

/// A path that a source names, from the crate's root.
pub struct Named {
    pub path: Vec<String>,
    /// Whether it is only made public here, under another path.
    pub is_re_export: bool,
}

/// Reads all library code below a directory.
pub fn read(src: &Path) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut test_modules = BTreeSet::new();
    read_into(src, src, &mut sources, &mut test_modules);
    sources.retain(|source| !test_modules.iter().any(|tests| source.module.starts_with(tests)));
    sources
}

fn read_into(src: &Path, directory: &Path, sources: &mut Vec<Source>, tests: &mut BTreeSet<Vec<String>>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            read_into(src, &path, sources, tests);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = path.strip_prefix(src).unwrap().to_path_buf();
            let module = module_of(&file);
            let (code, test_modules) = without_tests(&plain(&fs::read_to_string(&path).unwrap()));
            tests.extend(test_modules.into_iter().map(|name| [module.clone(), vec![name]].concat()));
            sources.push(Source { file, module, code });
        }
    }
}

fn module_of(file: &Path) -> Vec<String> {
    let mut parts: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib")) {
        parts.pop();
    }
    parts
}

/// Takes out comments and the content of texts.
fn plain(text: &str) -> String {
    let bytes: Vec<char> = text.chars().collect();
    let mut code = String::new();
    let mut at = 0;
    let starts = |at: usize, what: &str| bytes[at..].iter().copied().take(what.len()).eq(what.chars());
    while at < bytes.len() {
        if starts(at, "//") {
            while at < bytes.len() && bytes[at] != '\n' {
                at += 1;
            }
        } else if starts(at, "/*") {
            while at < bytes.len() && !starts(at, "*/") {
                at += 1;
            }
            at += 2;
        } else if bytes[at] == '"' {
            // A raw text ends with as many hashes as it began with.
            let hashes = code.chars().rev().take_while(|sign| *sign == '#').count();
            let is_raw = code.chars().rev().nth(hashes) == Some('r');
            let end = format!("\"{}", "#".repeat(if is_raw { hashes } else { 0 }));
            at += 1;
            while at < bytes.len() && !starts(at, &end) {
                at += if bytes[at] == '\\' && !is_raw { 2 } else { 1 };
            }
            at += end.len();
            code.push_str("\"\"");
        } else if bytes[at] == '\'' && (starts(at + 1, "\\") || bytes.get(at + 2) == Some(&'\'')) {
            at += if bytes[at + 1] == '\\' { 3 } else { 2 };
            while at < bytes.len() && bytes[at] != '\'' {
                at += 1;
            }
            at += 1;
        } else {
            code.push(bytes[at]);
            at += 1;
        }
    }
    code
}

/// Removes code that is compiled for tests only. Also returns the names of test modules that are files of their own.
fn without_tests(code: &str) -> (String, Vec<String>) {
    let (mut kept, mut modules, mut rest) = (String::new(), Vec::new(), code);
    while let Some(start) = rest.find("#[cfg(test)]").into_iter().chain(rest.find("#[cfg(all(test")).min() {
        kept.push_str(&rest[..start]);
        rest = &rest[start + rest[start..].find(']').unwrap() + 1..];
        let item = rest.trim_start();
        let end = rest.find(['{', ';']).unwrap();
        if rest[end..].starts_with(';') {
            modules.extend(item.strip_prefix("mod ").map(|name| identifier(name).to_string()));
            rest = &rest[end + 1..];
        } else {
            rest = &rest[end + closing(&rest[end..])..];
        }
    }
    kept.push_str(rest);
    (kept, modules)
}

/// Where a block that begins here ends.
fn closing(block: &str) -> usize {
    let mut depth = 0;
    for (at, sign) in block.char_indices() {
        match sign {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    block.len()
}

fn identifier(text: &str) -> &str {
    let end = text.find(|sign: char| !sign.is_alphanumeric() && sign != '_').unwrap_or(text.len());
    &text[..end]
}

impl Source {
    /// Everything that this source names by a path from the root of its crate, or by one that leads up.
    pub fn names(&self) -> Vec<Named> {
        let mut named = self.paths_after("crate::", &[]);
        for (at, _) in self.code.match_indices("super") {
            let follows = |sign: char| sign.is_alphanumeric() || sign == '_' || sign == ':';
            if self.code[..at].ends_with(follows) || !self.code[at..].starts_with("super::") {
                continue;
            }
            let ups = self.code[at..].split("super::").skip(1).take_while(|rest| rest.is_empty()).count() + 1;
            let rest = &self.code[at + ups * "super::".len()..];
            let module = self.module_at(at);
            let base = module[..module.len().saturating_sub(ups)].to_vec();
            named.extend(self.tree(at, rest, base));
        }
        named
    }

    /// The names behind paths with a certain beginning: another crate's name, for example.
    pub fn paths_after(&self, beginning: &str, base: &[String]) -> Vec<Named> {
        let found = self.code.match_indices(beginning).filter(|(at, _)| {
            !self.code[..*at].ends_with(|sign: char| sign.is_alphanumeric() || sign == '_' || sign == ':')
        });
        found.flat_map(|(at, _)| self.tree(at, &self.code[at + beginning.len()..], base.to_vec())).collect()
    }

    fn tree(&self, at: usize, rest: &str, base: Vec<String>) -> Vec<Named> {
        let mut paths = Vec::new();
        collect(rest, base, &mut paths);
        let line = self.code[..at].rfind([';', '}', '{']).map_or(0, |start| start + 1);
        let is_re_export = self.code[line..at].trim_start().starts_with("pub use");
        paths.into_iter().map(|path| Named { path, is_re_export }).collect()
    }

    /// The module at a place in this file: files may hold modules inside.
    fn module_at(&self, at: usize) -> Vec<String> {
        let mut module = self.module.clone();
        for (start, _) in self.code.match_indices("mod ") {
            let name = identifier(&self.code[start + 4..]);
            let block = start + 4 + name.len() + 1;
            let is_block = self.code.get(block..=block) == Some("{");
            if is_block && start < at && at < block + closing(&self.code[block..]) {
                module.push(name.to_string());
            }
        }
        module
    }
}

/// Collects the paths of a use tree.
fn collect(tree: &str, base: Vec<String>, paths: &mut Vec<Vec<String>>) {
    let tree = tree.trim_start();
    if let Some(inside) = tree.strip_prefix('{') {
        let group = &inside[..closing(tree) - 2];
        let mut depth = 0;
        let members = group.split(|sign| {
            depth += i32::from(sign == '{') - i32::from(sign == '}');
            sign == ',' && depth == 0
        });
        members
            .filter(|member| !member.trim().is_empty())
            .for_each(|member| collect(member, base.clone(), paths));
        return;
    }
    let name = identifier(tree);
    let mut path = base;
    if name.is_empty() || name == "self" {
        return paths.push(path);
    }
    path.push(name.to_string());
    match tree[name.len()..].strip_prefix("::") {
        Some(rest) if path.len() < 4 => collect(rest, path, paths),
        _ => paths.push(path),
    }
}
