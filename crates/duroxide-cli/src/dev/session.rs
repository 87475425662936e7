//! How `duroxide dev crash` finds the `duroxide dev` that runs: a note in its temporary directory.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::failure::{Failure, Outcome};

const PREFIX: &str = "duroxide-dev-";
const NOTE: &str = "dev.json";
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// More than any answer has.
const MOST_BYTES: u64 = 64 * 1024;

/// What others have to know of a `duroxide dev` that runs.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    port: u16,
}

/// Makes the directory of a `duroxide dev`, which is gone when it is dropped.
pub fn directory() -> io::Result<TempDir> {
    tempfile::Builder::new().prefix(PREFIX).tempdir()
}

/// Leaves the note.
pub fn leave_note(directory: &Path, address: SocketAddr) -> io::Result<()> {
    let note = serde_json::to_string(&Note { port: address.port() })?;
    std::fs::write(directory.join(NOTE), note)
}

/// Asks the newest `duroxide dev` that runs to kill its worker.
///
/// # Errors
/// If there is none, or it refuses.
pub async fn crash() -> Outcome<String> {
    let none = || {
        Failure::not_found("no `duroxide dev` is running here")
            .hint("start one in another terminal; it prints the address of its dashboard")
    };
    for note in notes().map_err(|_| none())? {
        match ask(note.port).await {
            Ok(answer) => return answer.map_err(Failure::failed),
            // A note of one that was killed: nobody listens there any more.
            Err(error) => tracing::debug!(%error, "an older note"),
        }
    }
    Err(none())
}

/// The notes in the temporary directory, the newest first.
fn notes() -> io::Result<Vec<Note>> {
    let mut found: Vec<(SystemTime, Note)> = Vec::new();
    for entry in std::fs::read_dir(std::env::temp_dir())?.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        if let Some(note) = read(entry.path().join(NOTE)) {
            found.push(note);
        }
    }
    found.sort_by_key(|(written, _)| std::cmp::Reverse(*written));
    Ok(found.into_iter().map(|(_, note)| note).collect())
}

fn read(path: PathBuf) -> Option<(SystemTime, Note)> {
    let written = std::fs::metadata(&path).ok()?.modified().ok()?;
    Some((written, serde_json::from_slice(&std::fs::read(path).ok()?).ok()?))
}

/// Asks for the same as the button in the dashboard. The outer error says that nobody listens there.
async fn ask(port: u16) -> io::Result<Result<String, String>> {
    let request = format!(
        "POST /api/v1/actions/crash HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n\
         x-duroxide-action: 1\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
    );
    let talk = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MOST_BYTES).read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer: io::Result<String> = tokio::time::timeout(ANSWER_TIMEOUT, talk)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    understand(&answer?)
}

fn understand(answer: &str) -> io::Result<Result<String, String>> {
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
    let body: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    let text = |name: &str| body.get(name).and_then(serde_json::Value::as_str).map(str::to_string);
    match status {
        Some(200..=299) => Ok(Ok(text("message").unwrap_or_else(|| "killed the worker".to_string()))),
        Some(404) | None => Err(io::ErrorKind::InvalidData.into()),
        Some(status) => {
            let reason = text("message").or_else(|| text("error"));
            Ok(Err(reason.unwrap_or_else(|| format!("the answer was {status}"))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_understood() {
        let ok = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"message\":\"killed worker 7\"}";
        assert_eq!(understand(ok).unwrap(), Ok("killed worker 7".to_string()));
        let no = "HTTP/1.1 403 Forbidden\r\n\r\n{\"error\":\"read-only\"}";
        assert_eq!(understand(no).unwrap(), Err("read-only".to_string()));
        assert!(understand("HTTP/1.1 404 Not Found\r\n\r\n").is_err());
        assert!(understand("garbage").is_err());
    }
}
