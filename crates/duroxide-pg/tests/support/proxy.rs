//! A proxy in front of the server, whose connections a test can cut.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the proxy does to the next commit that passes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextCommit {
    /// Passes it on.
    Pass,
    /// Lets the server make it, and cuts the connection before the client hears of that.
    LoseAnswer,
    /// Cuts the connection before the server hears of it.
    LoseRequest,
    /// Passes half of the bytes on to the server.
    LoseHalf,
}

/// How bytes fare on their way, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// They arrive.
    Fair,
    /// They arrive late.
    Slow(Duration),
    /// The proxy holds them back until the weather changes; connections look alive.
    Frozen,
}

/// A proxy in front of a server.
pub struct Proxy {
    port: u16,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

struct State {
    /// Where new connections lead to.
    server: AtomicU16,
    /// Connections made before the last cut are over.
    cuts: watch::Sender<usize>,
    /// Connections made before the last hang-up end in an orderly way for the server, after the bytes that were sent.
    hang_ups: watch::Sender<usize>,
    next_commits: Mutex<VecDeque<NextCommit>>,
    /// The same for calls that only lease.
    next_claims: Mutex<VecDeque<NextCommit>>,
    spoiled: AtomicUsize,
    /// How many commits have come from clients, whatever became of them.
    commits: watch::Sender<usize>,
    /// The proxy cuts the next connections after so many answers.
    short_lives: Mutex<VecDeque<usize>>,
    weather: watch::Sender<Weather>,
    /// The most bytes that the server has sent on a connection without being asked for more.
    largest_answer: AtomicUsize,
}

impl Proxy {
    pub async fn new(server: u16) -> Self {
        Self::at(0, server).await
    }

    /// Makes a proxy that listens at this port, for example that of an earlier one.
    pub async fn at(port: u16, server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            server: AtomicU16::new(server),
            cuts: watch::Sender::new(0),
            hang_ups: watch::Sender::new(0),
            next_commits: Mutex::default(),
            next_claims: Mutex::default(),
            spoiled: AtomicUsize::new(0),
            commits: watch::Sender::new(0),
            short_lives: Mutex::default(),
            weather: watch::Sender::new(Weather::Fair),
            largest_answer: AtomicUsize::new(0),
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

    /// Leads new connections to another server; open ones stay.
    pub fn point_to(&self, server: u16) {
        self.state.server.store(server, Ordering::SeqCst);
    }

    /// Closes new connections at once until [`point_to`](Self::point_to) is called; open ones stay.
    pub fn refuse_new_connections(&self) {
        // Nobody can listen at port 0, so the proxy reaches no server.
        self.point_to(0);
    }

    /// Cuts every open connection.
    pub fn cut(&self) {
        self.state.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Tells the server, on every open connection, that the client sends nothing more.
    pub fn hang_up(&self) {
        self.state.hang_ups.send_modify(|hang_ups| *hang_ups += 1);
    }

    /// Says what to do to the next commit, on whatever connection.
    pub fn spoil_next_commit(&self, how: NextCommit) {
        self.spoil_next_commits(&[how]);
    }

    /// Says what to do to the next commits, one after the other, on whatever connection.
    pub fn spoil_next_commits(&self, how: &[NextCommit]) {
        *self.state.next_commits.lock().unwrap() = how.iter().copied().collect();
    }

    /// Says what to do to the next call that only leases, on whatever connection.
    pub fn spoil_next_claim(&self, how: NextCommit) {
        self.state.next_claims.lock().unwrap().push_back(how);
    }

    /// Cuts the next connections, one after the other, after so many pieces of what the server sends.
    pub fn cut_next_connections(&self, after: &[usize]) {
        *self.state.short_lives.lock().unwrap() = after.iter().copied().collect();
    }

    /// Returns a watch that changes whenever a commit arrives from a client.
    pub fn commits(&self) -> watch::Receiver<usize> {
        self.state.commits.subscribe()
    }

    pub fn set_weather(&self, weather: Weather) {
        self.state.weather.send_replace(weather);
    }

    /// Returns the bytes of the largest answer since the last call.
    pub fn take_largest_answer(&self) -> usize {
        self.state.largest_answer.swap(0, Ordering::SeqCst)
    }

    /// Returns how many commits the proxy has spoiled.
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
        let (mut cuts, mut hang_ups) = (self.cuts.subscribe(), self.hang_ups.subscribe());
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", self.server.load(Ordering::SeqCst))).await
        else {
            return;
        };
        let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
        let mut answers_left = self.short_lives.lock().unwrap().pop_front();
        let (mut sent, mut answered) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
        let mut answer = 0;
        loop {
            tokio::select! {
                _ = cuts.changed() => return,
                _ = hang_ups.changed() => {
                    let _ = server.shutdown().await;
                }
                read = client.read(&mut sent) => match read {
                    Ok(count @ 1..) => {
                        answer = 0;
                        if is_batch(&sent[..count]) {
                            self.commits.send_modify(|commits| *commits += 1);
                        }
                        let passing = async {
                            self.travel().await;
                            self.pass(&sent[..count], &mut server).await
                        };
                        let passed = tokio::select! {
                            passed = passing => passed,
                            _ = cuts.changed() => return,
                        };
                        if passed.is_err() {
                            return;
                        }
                    }
                    _ => return,
                },
                read = server.read(&mut answered) => match read {
                    Ok(count @ 1..) => {
                        match answers_left.as_mut() {
                            Some(0) => return,
                            Some(left) => *left -= 1,
                            None => {}
                        }
                        answer += count;
                        self.largest_answer.fetch_max(answer, Ordering::SeqCst);
                        self.travel().await;
                        if client.write_all(&answered[..count]).await.is_err() {
                            return;
                        }
                    }
                    _ => return,
                },
            }
        }
    }

    /// Waits as long as the weather wants.
    async fn travel(&self) {
        let mut weather = self.weather.subscribe();
        let now = *weather.borrow_and_update();
        match now {
            Weather::Fair => {}
            Weather::Slow(delay) => tokio::time::sleep(delay).await,
            Weather::Frozen => {
                let _ = weather.wait_for(|weather| *weather != Weather::Frozen).await;
            }
        }
    }

    /// Passes on what a client sent; an error ends the connection.
    async fn pass(&self, sent: &[u8], server: &mut TcpStream) -> Result<(), ()> {
        let next = match sent {
            claim if is_claim(claim) => Some(&self.next_claims),
            batch if is_batch(batch) => Some(&self.next_commits),
            _ => None,
        };
        let how = next.and_then(|next| next.lock().unwrap().pop_front()).unwrap_or(NextCommit::Pass);
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

/// Tells whether a client sends a batch: among the parameters, an epoch follows the name of a committer (32 digits).
fn is_batch(sent: &[u8]) -> bool {
    const NAME: &[u8] = &[0, 0, 0, 32];
    const EPOCH: &[u8] = &[0, 0, 0, 8];
    sent.windows(40).any(|bytes| {
        bytes.starts_with(NAME) && bytes[4..36].iter().all(u8::is_ascii_hexdigit) && bytes.ends_with(EPOCH)
    })
}

/// Tells whether a client asks for leases. The last parameters are a seed (32 digits) and, of instances, no array; of activities,
/// a number; of instances one by one, nothing. (Giving leases back has three parameters: no time, a seed and a number.) All
/// results are binary.
fn is_claim(sent: &[u8]) -> bool {
    const SEED: &[u8] = &[0, 0, 0, 32];
    const NOTHING: &[u8] = &[255, 255, 255, 255];
    const NUMBER: &[u8] = &[0, 0, 0, 8];
    const BINARY: &[u8] = &[0, 1, 0, 1];
    const THREE_THE_FIRST_NOTHING: &[u8] = &[0, 3, 255, 255, 255, 255];
    sent.windows(40).enumerate().any(|(at, bytes)| {
        let (seed, last) = bytes.split_at(36);
        let ends_after = |length: usize| sent.get(at + length..).is_some_and(|rest| rest.starts_with(BINARY));
        seed.starts_with(SEED)
            && seed[4..].iter().all(u8::is_ascii_hexdigit)
            && !sent[..at].ends_with(THREE_THE_FIRST_NOTHING)
            && (last == NOTHING && ends_after(40)
                || last == NUMBER && ends_after(48)
                || last == BINARY && !is_batch(sent))
    })
}

/// Reads the server's answers until it is ready for the next transaction, and passes none on.
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
