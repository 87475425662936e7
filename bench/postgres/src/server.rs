//! A PostgreSQL server of its own for a benchmark, with the settings that a server has by default: every commit is
//! synced. It is stopped and removed at the end, in whatever way the program ends.
//!
//! PostgreSQL does not run as root; if we are, its tools are run as the user `postgres` or `nobody`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::Outcome;

/// Ticks of `/proc/…/stat` in a second, the same on every Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// A server, as long as this lives.
pub struct Server {
    directory: PathBuf,
    port: u16,
    keeper: Child,
    tools: Tools,
}

impl Server {
    /// Makes a server in a directory below `parent`, which should be on a disk, and starts it.
    pub fn start(parent: &Path) -> Outcome<Self> {
        let server = Self::make_room(parent)?;
        server.tools.create(&server.directory, server.port)?;
        Ok(server)
    }

    /// Makes a copy of another server below `parent` and starts it; it follows the other until it is promoted. The other
    /// knows it as `standby`.
    #[allow(dead_code, reason = "not every benchmark has a standby")]
    pub fn standby_of(primary: &Self, parent: &Path) -> Outcome<Self> {
        let server = Self::make_room(parent)?;
        server.tools.copy(&server.directory, server.port, primary.port)?;
        Ok(server)
    }

    /// Makes the directory of a server, and sees to it that it goes away.
    fn make_room(parent: &Path) -> Outcome<Self> {
        let tools = Tools::find()?;
        let directory = std::path::absolute(parent)?.join(format!("postgres-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let keeper = keeper(&directory, &tools)?;
        tools.give(&directory)?;
        Ok(Self { directory, port, keeper, tools })
    }

    #[allow(dead_code, reason = "not every benchmark asks")]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops the server; `mode` is `fast`, as an operator does it, or `immediate`, which is like a crash.
    #[allow(dead_code, reason = "not every benchmark stops its server")]
    pub fn stop(&self, mode: &str) -> Outcome<()> {
        self.tools.run(&self.directory, "pg_ctl", &["-D", "data", "-m", mode, "-w", "stop"])
    }

    #[allow(dead_code, reason = "not every benchmark stops its server")]
    pub fn start_again(&self) -> Outcome<()> {
        self.tools.run(&self.directory, "pg_ctl", &["-D", "data", "-l", "log", "-w", "start"])
    }

    /// Makes a standby a server that accepts writes.
    #[allow(dead_code, reason = "not every benchmark has a standby")]
    pub fn promote(&self) -> Outcome<()> {
        self.tools.run(&self.directory, "pg_ctl", &["-D", "data", "-w", "promote"])
    }

    /// The way to it over the loopback.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Processor time of the server so far, in seconds: of its processes that live and of those that have ended. Linux
    /// only; elsewhere 0.
    #[allow(dead_code, reason = "not every benchmark asks")]
    pub fn cpu_seconds(&self) -> f64 {
        let file = fs::read_to_string(self.directory.join("data/postmaster.pid")).unwrap_or_default();
        let Some(postmaster) = file.lines().next() else { return 0.0 };
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ticks = processes.filter_map(|process| {
            let stat = fs::read_to_string(process.path().join("stat")).ok()?;
            // The name of the program may hold spaces, so fields are counted from behind it.
            let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
            let sum = |places: std::ops::Range<usize>| -> f64 {
                fields.get(places).into_iter().flatten().filter_map(|field| field.parse::<f64>().ok()).sum()
            };
            if process.file_name().to_str() == Some(postmaster) {
                // Its own time, and that of the children that it has waited for.
                Some(sum(11..15))
            } else {
                (fields.get(1) == Some(&postmaster)).then(|| sum(11..13))
            }
        });
        ticks.sum::<f64>() / TICKS_PER_SECOND
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The keeper sees the end of its input and clears away.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Starts a shell that waits for our end, which closes its input, and then stops the server and removes its files. It is
/// in a process group of its own, so that what interrupts us does not reach it.
fn keeper(directory: &Path, tools: &Tools) -> Outcome<Child> {
    let stop = tools.command_line("pg_ctl", &["-D", "data", "-m", "immediate", "-w", "stop"]);
    let directory = directory.display();
    let script = format!("cat >/dev/null; cd '{directory}' && {stop}; cd / && rm -rf '{directory}'");
    let keeper = Command::new("sh")
        .args(["-c", &script])
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(keeper)
}

/// PostgreSQL's own programs.
struct Tools {
    directory: PathBuf,
    /// The user that runs them, if it is not us.
    user: Option<&'static str>,
}

impl Tools {
    fn find() -> Outcome<Self> {
        let on_path = std::env::var_os("PATH").unwrap_or_default();
        let mut places: Vec<PathBuf> = std::env::split_paths(&on_path).collect();
        let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let mut versions: Vec<PathBuf> = installed.map(|entry| entry.path().join("bin")).collect();
        versions.sort();
        places.extend(versions.into_iter().rev());
        let directory = places
            .into_iter()
            .find(|place| place.join("initdb").exists() && place.join("pg_ctl").exists())
            .ok_or("PostgreSQL is needed (Debian: apt-get install postgresql)")?;
        // The path may hold links to some of the programs only.
        let program = fs::canonicalize(directory.join("pg_ctl"))?;
        let directory = program.parent().ok_or("pg_ctl is in no directory")?.to_path_buf();
        let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
        let exists = |user: &str| Command::new("id").arg(user).output().is_ok_and(|id| id.status.success());
        let user = is_root.then(|| if exists("postgres") { "postgres" } else { "nobody" });
        Ok(Self { directory, user })
    }

    /// Gives a file to the server's user.
    fn give(&self, path: &Path) -> Outcome<()> {
        let Some(user) = self.user else { return Ok(()) };
        let owned = Command::new("chown").arg(user).arg(path).status()?;
        match owned.success() {
            true => Ok(()),
            false => Err(format!("cannot give {} to {user}", path.display()).into()),
        }
    }

    fn create(&self, directory: &Path, port: u16) -> Outcome<()> {
        self.run(directory, "initdb", &["-D", "data", "-A", "trust", "-U", "postgres", "-E", "UTF8"])?;
        let mut file = OpenOptions::new().append(true).open(directory.join("data/postgresql.conf"))?;
        writeln!(file, "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = ''")?;
        drop(file);
        self.run(directory, "pg_ctl", &["-D", "data", "-l", "log", "-w", "start"])
    }

    fn copy(&self, directory: &Path, port: u16, primary: u16) -> Outcome<()> {
        let from = primary.to_string();
        let arguments =
            ["-h", "127.0.0.1", "-p", &from, "-U", "postgres", "-D", "data", "-X", "stream", "-c", "fast"];
        self.run(directory, "pg_basebackup", &arguments)?;
        let mut file = OpenOptions::new().append(true).open(directory.join("data/postgresql.conf"))?;
        writeln!(
            file,
            "port = {port}\nprimary_conninfo = 'host=127.0.0.1 port={primary} user=postgres application_name=standby'"
        )?;
        drop(file);
        fs::write(directory.join("data/standby.signal"), "")?;
        self.give(&directory.join("data/standby.signal"))?;
        self.run(directory, "pg_ctl", &["-D", "data", "-l", "log", "-w", "start"])
    }

    fn run(&self, directory: &Path, program: &str, arguments: &[&str]) -> Outcome<()> {
        let status = Command::new("sh")
            .args(["-c", &format!("{} >tools.log 2>&1", self.command_line(program, arguments))])
            .current_dir(directory)
            .stdin(Stdio::null())
            .status()?;
        if status.success() {
            return Ok(());
        }
        let said = fs::read_to_string(directory.join("tools.log")).unwrap_or_default();
        Err(format!("{program} failed in {}: {said}", directory.display()).into())
    }

    fn command_line(&self, program: &str, arguments: &[&str]) -> String {
        let program = self.directory.join(program).display().to_string();
        let prefix = self.user.map(|user| format!("runuser -u {user} -- ")).unwrap_or_default();
        format!("{prefix}'{program}' {}", arguments.join(" "))
    }
}
