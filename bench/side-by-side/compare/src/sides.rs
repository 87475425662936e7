//! The two programs that are compared.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Outcome;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Published,
    Ours,
}

impl Side {
    pub fn name(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Ours => "ours",
        }
    }
}

pub struct Programs {
    published: PathBuf,
    ours: PathBuf,
}

impl Programs {
    /// Builds both, for release.
    pub fn build() -> Outcome<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        Ok(Self {
            published: build(&root.join("published"), "side-by-side-published")?,
            ours: build(&root.join("ours"), "side-by-side-ours")?,
        })
    }

    pub fn path(&self, side: Side) -> &Path {
        match side {
            Side::Published => &self.published,
            Side::Ours => &self.ours,
        }
    }
}

/// Builds a package in a directory of its own below the common target directory, if there is one: the packages do
/// not agree on what they link, and would build it anew each time.
pub fn build(package: &Path, binary: &str) -> Outcome<PathBuf> {
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(common) => PathBuf::from(common).join(package.file_name().unwrap_or_default()),
        None => package.join("target"),
    };
    eprintln!("building {binary}");
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--locked", "--quiet"])
        .current_dir(package)
        .env("CARGO_TARGET_DIR", &target)
        .stdout(Stdio::null())
        .status()?;
    if !status.success() {
        return Err(format!("{binary} cannot be built").into());
    }
    Ok(std::path::absolute(target)?.join("release").join(binary))
}
