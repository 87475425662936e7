//! A PgBouncer in front of whichever server is the primary.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::Outcome;
use crate::stats::now;

/// A pooler that has not started by then never will.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);

/// A pooler of transactions, as long as this lives.
pub struct Bouncer {
    directory: PathBuf,
    port: u16,
    process: Option<Child>,
}

impl Bouncer {
    /// Starts a pooler for the server at a port.
    pub fn start(directory: &Path, server: u16) -> Outcome<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        fs::write(directory.join("users.txt"), "\"postgres\" \"\"\n")?;
        let mut bouncer = Self { directory: directory.to_path_buf(), port, process: None };
        bouncer.configure(server)?;
        bouncer.start_again()?;
        Ok(bouncer)
    }

    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    fn configure(&self, server: u16) -> Outcome<()> {
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\nmax_client_conn = 200\n\
             default_pool_size = 10\nserver_login_retry = 1\n",
            self.port,
            self.directory.join("users.txt").display(),
        );
        Ok(fs::write(self.directory.join("bouncer.ini"), settings)?)
    }

    /// Leads to another server from now on, as an operator does it after a failover.
    pub fn point_to(&mut self, server: u16) -> Outcome<()> {
        self.configure(server)?;
        let Some(process) = &self.process else { return Ok(()) };
        let reloaded = Command::new("kill").args(["-HUP", &process.id().to_string()]).status()?;
        if reloaded.success() { Ok(()) } else { Err("PgBouncer cannot be reloaded".into()) }
    }

    /// Ends it as a crash would.
    pub fn crash(&mut self) -> Outcome<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    pub fn start_again(&mut self) -> Outcome<()> {
        let mut command = Command::new("setpriv");
        // The pooler ends with this process, in whatever way that ends.
        command.args(["--pdeathsig", "KILL"]);
        if Command::new("id").arg("-u").output()?.stdout == b"0\n" {
            let exists =
                |user: &str| Command::new("id").arg(user).output().is_ok_and(|id| id.status.success());
            command.args([
                "--reuid",
                if exists("postgres") { "postgres" } else { "nobody" },
                "--clear-groups",
            ]);
        }
        let log = File::options().create(true).append(true).open(self.directory.join("bouncer.log"))?;
        let mut process = command
            .arg(program()?)
            .arg(self.directory.join("bouncer.ini"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        let began = now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if process.try_wait()?.is_some() || now() - began > PATIENCE {
                let said = fs::read_to_string(self.directory.join("bouncer.log"))?;
                return Err(format!("PgBouncer does not start: {said}").into());
            }
            std::thread::sleep(LOOK);
        }
        self.process = Some(process);
        Ok(())
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        // It ends with this process anyhow.
        let _ = self.crash();
    }
}

fn program() -> Outcome<PathBuf> {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&on_path).collect();
    places.push("/usr/sbin".into());
    let found = places.into_iter().map(|place| place.join("pgbouncer")).find(|file| file.exists());
    found.ok_or_else(|| "PgBouncer is needed (Debian: apt-get install pgbouncer)".into())
}
