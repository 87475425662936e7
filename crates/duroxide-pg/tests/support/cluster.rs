//! A PostgreSQL server that tests make and throw away.
//!
//! Every process that uses a server holds a shared lock on a file. A small shell script waits for that lock to be free,
//! which it is when the last user has ended, in whatever way, and then stops the server and removes its files. So the
//! tests of one run share a server although each may be a process of its own, and no server is left behind.
//!
//! PostgreSQL does not run as root; a test that does runs its tools as the user `postgres` or `nobody`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A server, as long as this lives.
pub struct Cluster {
    directory: PathBuf,
    port: u16,
    tools: Tools,
    /// The lock that this process holds while it uses the server.
    _in_use: File,
}

/// Whether the server syncs its commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Fast: the server syncs nothing.
    Forgetful,
    /// The server syncs every commit.
    Durable,
}

impl Cluster {
    /// Returns the server that the tests of a run share; it does not sync.
    pub fn shared() -> Self {
        // One for each build directory, so that two checkouts do not share one.
        let build = option_env!("CARGO_TARGET_TMPDIR").unwrap_or(env!("CARGO_MANIFEST_DIR"));
        let directory = std::env::temp_dir().join(format!("duroxide-pg-{:016x}", hash(build.bytes())));
        Self::join(directory, Kind::Forgetful, &[], &[])
    }

    /// Starts a server for one test, with settings of its own.
    pub fn own(kind: Kind, settings: &[&str]) -> Self {
        Self::own_with_files(kind, settings, &[])
    }

    /// Starts a server for one test, with files of its own in its data directory.
    pub fn own_with_files(kind: Kind, settings: &[&str], files: &[(&str, String)]) -> Self {
        let name = format!("duroxide-pg-{}", uuid::Uuid::new_v4().simple());
        Self::join(std::env::temp_dir().join(name), kind, settings, files)
    }

    /// Starts a copy of another server that follows it until it is promoted. It receives the other's writes through
    /// this port: the other's own or that of a proxy. The other knows it as `standby`.
    pub fn standby_of(primary: &Self, port: u16) -> Self {
        let name = format!("duroxide-pg-{}", uuid::Uuid::new_v4().simple());
        let (directory, tools) = (std::env::temp_dir().join(name), Tools::find());
        let starting = lock_for_starting(&directory);
        let in_use = open_lock(&directory, "users.lock").unwrap();
        in_use.lock_shared().unwrap();
        let own_port = free_port();
        tools.copy(&directory, primary, own_port, port);
        watch(&directory, &tools);
        drop(starting);
        Self { directory, port: own_port, tools, _in_use: in_use }
    }

    fn join(directory: PathBuf, kind: Kind, settings: &[&str], files: &[(&str, String)]) -> Self {
        let tools = Tools::find();
        let starting = lock_for_starting(&directory);
        let in_use = open_lock(&directory, "users.lock").unwrap();
        in_use.lock_shared().unwrap();
        let port = match std::fs::read_to_string(directory.join("port")) {
            Ok(port) => {
                // Another program, which does not know who uses the server, may have killed it.
                if !directory.join("data/postmaster.pid").exists() {
                    tools.run(&directory, "pg_ctl", &["-D", "data", "-l", "log", "-w", "start"]);
                }
                port.trim().parse().unwrap()
            }
            Err(_) => {
                // Removes the files of an interrupted start.
                let _ = std::fs::remove_dir_all(directory.join("data"));
                let port = free_port();
                tools.create(&directory, port, kind, settings, files);
                watch(&directory, &tools);
                std::fs::write(directory.join("port"), port.to_string()).unwrap();
                port
            }
        };
        drop(starting);
        Self { directory, port, tools, _in_use: in_use }
    }

    /// Returns the URL over the server's Unix socket.
    pub fn url(&self) -> String {
        let directory = self.directory.display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{directory}:{}/postgres", self.port)
    }

    /// Returns the URL over TCP, through this port: the server's own or that of a proxy.
    pub fn url_through(&self, port: u16) -> String {
        format!("postgres://postgres:not-a-secret@127.0.0.1:{port}/postgres")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops the server as a crash would, and starts it again.
    pub fn crash(&self) {
        self.stop();
        self.start();
    }

    /// Stops the server in an orderly way, and starts it again.
    pub fn restart(&self) {
        self.tools.run(&self.directory, "pg_ctl", &["-D", "data", "-m", "fast", "-w", "stop"]);
        self.start();
    }

    /// Writes a file in the server's data directory.
    pub fn write_file(&self, name: &str, text: &str) {
        self.tools.write(&self.directory.join("data").join(name), text);
    }

    pub fn stop(&self) {
        self.tools.run(&self.directory, "pg_ctl", &["-D", "data", "-m", "immediate", "-w", "stop"]);
    }

    /// Makes a standby a server that accepts writes.
    pub fn promote(&self) {
        self.tools.run(&self.directory, "pg_ctl", &["-D", "data", "-w", "promote"]);
    }

    pub fn start(&self) {
        self.tools.run(&self.directory, "pg_ctl", &["-D", "data", "-l", "log", "-w", "start"]);
    }
}

/// Makes a short name of something long (FNV-1a).
pub fn hash(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn open_lock(directory: &Path, name: &str) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(directory.join(name))
}

/// Keeps other processes from starting or stopping the server. Another process may remove the files meanwhile; then
/// this begins again with new ones.
fn lock_for_starting(directory: &Path) -> File {
    loop {
        std::fs::create_dir_all(directory).unwrap();
        let Ok(file) = open_lock(directory, "starting.lock") else { continue };
        file.lock().unwrap();
        let there = std::fs::metadata(directory.join("starting.lock"));
        if there.is_ok_and(|there| there.ino() == file.metadata().unwrap().ino()) {
            return file;
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts the script that stops the server after its last user.
fn watch(directory: &Path, tools: &Tools) {
    let stop = tools.command_line("pg_ctl", &["-D", "data", "-m", "immediate", "-w", "stop"]);
    let script = format!(
        "cd '{directory}' || exit; exec 8>>starting.lock 9>>users.lock
         while :; do
             flock -x 9; flock -u 9; sleep 2
             flock -x 8
             if flock -n -x 9; then {stop}; cd /; rm -rf '{directory}'; exit; fi
             flock -u 8
         done",
        directory = directory.display()
    );
    // The script must outlive this process, so it gets a session of its own, and no process waits for it.
    let watching = Command::new("setsid")
        .args(["--fork", "sh", "-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(watching.is_ok_and(|status| status.success()), "setsid and flock (util-linux) are needed");
}

/// PostgreSQL's own programs.
struct Tools {
    directory: PathBuf,
    /// The user that runs them, if it is not the test's own.
    user: Option<&'static str>,
}

impl Tools {
    fn find() -> Self {
        let on_path = std::env::var_os("PATH").unwrap_or_default();
        let mut places: Vec<PathBuf> = std::env::split_paths(&on_path).collect();
        let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let mut versions: Vec<PathBuf> = installed.map(|entry| entry.path().join("bin")).collect();
        versions.sort();
        places.extend(versions.into_iter().rev());
        let found =
            places.into_iter().find(|place| place.join("initdb").exists() && place.join("pg_ctl").exists());
        let Some(directory) = found else {
            panic!(
                "PostgreSQL is needed: install it (Debian: apt-get install postgresql) or set DATABASE_URL"
            );
        };
        // The path may hold links to some of the programs.
        let program = std::fs::canonicalize(directory.join("pg_ctl")).unwrap();
        let directory = program.parent().unwrap().to_path_buf();
        let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
        let exists = |user: &str| Command::new("id").arg(user).output().is_ok_and(|id| id.status.success());
        let user = match is_root {
            false => None,
            true => Some(if exists("postgres") { "postgres" } else { "nobody" }),
        };
        Self { directory, user }
    }

    fn create(&self, directory: &Path, port: u16, kind: Kind, settings: &[&str], files: &[(&str, String)]) {
        self.give(directory);
        self.run(
            directory,
            "initdb",
            &["-D", "data", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync"],
        );
        let sync = match kind {
            Kind::Forgetful => "fsync = off\nsynchronous_commit = off\nfull_page_writes = off",
            Kind::Durable => "fsync = on",
        };
        let mut file = OpenOptions::new().append(true).open(directory.join("data/postgresql.conf")).unwrap();
        writeln!(
            file,
            "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{}'\nmax_connections = 400\n\
             shared_buffers = 64MB\n{sync}\n{}",
            directory.display(),
            settings.join("\n")
        )
        .unwrap();
        drop(file);
        for (name, text) in files {
            self.write(&directory.join("data").join(name), text);
        }
        self.run(directory, "pg_ctl", &["-D", "data", "-l", "log", "-w", "start"]);
    }

    /// Copies a running server, and starts the copy as its standby.
    fn copy(&self, directory: &Path, primary: &Cluster, own_port: u16, primary_port: u16) {
        self.give(directory);
        let (host, port) = (primary.directory.display().to_string(), primary.port.to_string());
        let from = ["-h", &host, "-p", &port, "-U", "postgres"];
        let how = ["-D", "data", "-X", "stream", "-c", "fast", "--no-sync"];
        self.run(directory, "pg_basebackup", &[&from[..], &how[..]].concat());
        let mut file = OpenOptions::new().append(true).open(directory.join("data/postgresql.conf")).unwrap();
        writeln!(
            file,
            "port = {own_port}\nunix_socket_directories = '{}'\nprimary_conninfo = \
             'host=127.0.0.1 port={primary_port} user=postgres application_name=standby'",
            directory.display()
        )
        .unwrap();
        drop(file);
        self.write(&directory.join("data/standby.signal"), "");
        self.run(directory, "pg_ctl", &["-D", "data", "-l", "log", "-w", "start"]);
    }

    /// Writes a file of the server's. The server would refuse a key that others can read.
    fn write(&self, path: &Path, text: &str) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        self.give(path);
    }

    /// Gives a file to the server's user.
    fn give(&self, path: &Path) {
        let Some(user) = self.user else { return };
        let owned = Command::new("chown").arg(user).arg(path).status().unwrap();
        assert!(owned.success(), "cannot give {} to {user}", path.display());
    }

    fn run(&self, directory: &Path, program: &str, arguments: &[&str]) {
        let output = Command::new("sh")
            .args(["-c", &format!("{} >tools.log 2>&1", self.command_line(program, arguments))])
            .current_dir(directory)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = || std::fs::read_to_string(directory.join("tools.log")).unwrap_or_default();
        assert!(output.status.success(), "{program} failed: {}", said());
    }

    fn command_line(&self, program: &str, arguments: &[&str]) -> String {
        let program = self.directory.join(program).display().to_string();
        let prefix = self.user.map(|user| format!("runuser -u {user} -- ")).unwrap_or_default();
        format!("{prefix}'{program}' {}", arguments.join(" "))
    }
}
