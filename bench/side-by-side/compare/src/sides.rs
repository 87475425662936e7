//! The two programs that are compared, and the store that they run on.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use crate::Outcome;
use crate::args::Against;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Store {
    #[default]
    Sqlite,
    Postgres,
}

impl FromStr for Store {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "sqlite" => Ok(Self::Sqlite),
            "postgres" => Ok(Self::Postgres),
            other => Err(format!("there is no store '{other}'")),
        }
    }
}

impl Store {
    /// What times are given as multiples of: a sync of the disk, or a commit of one row on the server.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Sqlite => "syncs",
            Self::Postgres => "commits",
        }
    }

    /// What the length of such a unit is called.
    pub fn unit_name(self) -> &'static str {
        match self {
            Self::Sqlite => "fdatasync p50",
            Self::Postgres => "bare commit p50",
        }
    }

    /// The package that ours is compared with.
    pub fn published(self) -> &'static str {
        match self {
            Self::Sqlite => "duroxide 0.1.32",
            Self::Postgres => "duroxide-pg 0.1.38",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What ours is compared with.
    Other,
    Ours,
}

impl Side {
    pub fn name(self) -> &'static str {
        match self {
            Self::Other => "the other",
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
    pub fn build(store: Store, against: &Against) -> Outcome<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let (ours, published) = match store {
            Store::Sqlite => ("ours", "published"),
            Store::Postgres => ("ours-pg", "published-pg"),
        };
        let one = |root: &Path, name: &str| build(&root.join(name), &format!("side-by-side-{name}"));
        let published = match against {
            Against::Published => one(&root, published)?,
            Against::Checkout(checkout) => {
                build_apart(&checkout.join("bench/side-by-side").join(ours), ours)?
            }
            Against::Peer("dbos") if store == Store::Sqlite => {
                return Err("dbos runs on PostgreSQL only: --store postgres".into());
            }
            Against::Peer(peer) => one(&root, peer)?,
        };
        Ok(Self { published, ours: one(&root, ours)? })
    }

    pub fn path(&self, side: Side) -> &Path {
        match side {
            Side::Other => &self.published,
            Side::Ours => &self.ours,
        }
    }
}

/// Builds our package of another checkout, in that checkout: a common target directory would mix the two up.
fn build_apart(package: &Path, name: &str) -> Outcome<PathBuf> {
    build_in(package, &format!("side-by-side-{name}"), package.join("target"))
}

/// Builds a package in a directory of its own below the common target directory, if there is one: the packages do
/// not agree on what they link, and would build it anew each time.
pub fn build(package: &Path, binary: &str) -> Outcome<PathBuf> {
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(common) => PathBuf::from(common).join(package.file_name().unwrap_or_default()),
        None => package.join("target"),
    };
    build_in(package, binary, target)
}

fn build_in(package: &Path, binary: &str, target: PathBuf) -> Outcome<PathBuf> {
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
