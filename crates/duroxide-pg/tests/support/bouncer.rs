//! A PgBouncer in front of a server, as long as a test needs it.

use std::fs::{File, Permissions};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use duroxide::providers::{Clock, SystemClock};

use super::cluster::Cluster;

/// A pooler that has not started by then never will.
const FAILURE_BOUND: Duration = Duration::from_secs(30);

/// A pooler.
pub struct Bouncer {
    directory: tempfile::TempDir,
    port: u16,
    process: Child,
}

impl Bouncer {
    /// Starts a pooler; `mode` is `session`, `transaction` or `statement`. `more` are lines of its settings.
    pub fn new(cluster: &Cluster, mode: &str, more: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // PgBouncer does not run as root, and has to read this directory.
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let users = directory.path().join("users.txt");
        std::fs::write(&users, "\"postgres\" \"\"\n").unwrap();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = {mode}\nmax_client_conn = 200\n{}\n",
            cluster.port(),
            users.display(),
            more.join("\n")
        );
        std::fs::write(directory.path().join("bouncer.ini"), settings).unwrap();
        let process = start(&directory, port);
        Self { directory, port, process }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends it as a crash would, and starts it again.
    pub fn restart(&mut self) {
        self.stop();
        self.process = start(&self.directory, self.port);
    }

    fn stop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn start(directory: &tempfile::TempDir, port: u16) -> Child {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&on_path).collect();
    places.push("/usr/sbin".into());
    let Some(program) = places.iter().map(|place| place.join("pgbouncer")).find(|file| file.exists()) else {
        panic!("PgBouncer is needed: install it (Debian: apt-get install pgbouncer)");
    };
    let mut command = Command::new("setpriv");
    // The pooler ends with this process, in whatever way that ends.
    command.args(["--pdeathsig", "KILL"]);
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    if is_root {
        let exists = |user: &str| Command::new("id").arg(user).output().is_ok_and(|id| id.status.success());
        let user = if exists("postgres") { "postgres" } else { "nobody" };
        command.args(["--reuid", user, "--clear-groups"]);
    }
    let log = File::options().create(true).append(true).open(directory.path().join("log")).unwrap();
    let mut process = command
        .arg(program)
        .arg(directory.path().join("bouncer.ini"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let deadline = SystemClock.monotonic() + FAILURE_BOUND;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let said = || std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
        assert!(process.try_wait().unwrap().is_none(), "PgBouncer has ended: {}", said());
        assert!(SystemClock.monotonic() < deadline, "PgBouncer does not start: {}", said());
        std::thread::sleep(Duration::from_millis(10));
    }
    process
}
