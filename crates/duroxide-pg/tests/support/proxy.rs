//! A way to the server that can be cut.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What becomes of the next commit that passes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextCommit {
    /// Nothing happens to it.
    Pass,
    /// The server makes it, and the connection is cut before the client hears of that.
    LoseAnswer,
    /// The connection is cut before the server hears of it.
    LoseRequest,
    /// The server gets half of what was sent.
    LoseHalf,
}

/// A proxy in front of a server.
pub struct Proxy {
    port: u16,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

struct State {
    server: u16,
    /// Connections made before the last cut are over.
    cuts: watch::Sender<usize>,
    next_commit: Mutex<NextCommit>,
    spoiled: AtomicUsize,
}

impl Proxy {
    pub async fn new(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            server,
            cuts: watch::Sender::new(0),
            next_commit: Mutex::new(NextCommit::Pass),
            spoiled: AtomicUsize::new(0),
        });
        let accepted = state.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(accepted.clone().carry(client));
            }
        });
        Self { port, state, accepting }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts every connection that there is.
    pub fn cut(&self) {
        self.state.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Says what becomes of the next commit, on whatever connection.
    pub fn spoil_next_commit(&self, how: NextCommit) {
        *self.state.next_commit.lock().unwrap() = how;
    }

    /// How many commits were spoiled.
    pub fn spoiled(&self) -> usize {
        self.state.spoiled.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

impl State {
    async fn carry(self: Arc<Self>, mut client: TcpStream) {
        let mut cuts = self.cuts.subscribe();
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", self.server)).await else { return };
        let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
        let (mut sent, mut answered) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
        loop {
            tokio::select! {
                _ = cuts.changed() => return,
                read = client.read(&mut sent) => match read {
                    Ok(count @ 1..) => {
                        if self.pass(&sent[..count], &mut server).await.is_err() {
                            return;
                        }
                    }
                    _ => return,
                },
                read = server.read(&mut answered) => match read {
                    Ok(count @ 1..) if client.write_all(&answered[..count]).await.is_ok() => {}
                    _ => return,
                },
            }
        }
    }

    /// Passes on what a client sent; an error ends the connection.
    async fn pass(&self, sent: &[u8], server: &mut TcpStream) -> Result<(), ()> {
        let how = match is_batch(sent) {
            true => std::mem::replace(&mut *self.next_commit.lock().unwrap(), NextCommit::Pass),
            false => NextCommit::Pass,
        };
        let passed = match how {
            NextCommit::LoseRequest => &[],
            NextCommit::LoseHalf => &sent[..sent.len() / 2],
            NextCommit::Pass | NextCommit::LoseAnswer => sent,
        };
        server.write_all(passed).await.map_err(drop)?;
        if how == NextCommit::Pass {
            return Ok(());
        }
        self.spoiled.fetch_add(1, Ordering::SeqCst);
        if how == NextCommit::LoseAnswer {
            swallow_until_committed(server).await;
        }
        Err(())
    }
}

/// Tells whether a batch is being sent: as parameters, the name of a committer (32 digits) and its epoch follow each other.
fn is_batch(sent: &[u8]) -> bool {
    const NAME: &[u8] = &[0, 0, 0, 32];
    const EPOCH: &[u8] = &[0, 0, 0, 8];
    sent.windows(40).any(|bytes| {
        bytes.starts_with(NAME) && bytes[4..36].iter().all(u8::is_ascii_hexdigit) && bytes.ends_with(EPOCH)
    })
}

/// Reads the server's answers until it is ready for the next transaction, and tells nobody.
async fn swallow_until_committed(server: &mut TcpStream) {
    const READY: &[u8] = b"Z\0\0\0\x05I";
    let (mut heard, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    while !heard.windows(READY.len()).any(|bytes| bytes == READY) {
        match server.read(&mut buffer).await {
            Ok(count @ 1..) => heard.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
}
