//! The call of `exec`, which becomes a connection to a program beside a step. Written by hand, because the HTTP library
//! does not give away its connections.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use sluice_common::api::ErrorBody;
use sluice_common::exec::{ExecRequest, UPGRADE};
use ureq::http::StatusCode;

use super::error::foreign_error;
use super::{ANSWER_LIMIT, ApiError, CONNECT_LIMIT, Client, ContextTls, segment, tunnel};

/// Most bytes before an answer's body.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Most bytes that are read of a refusal.
const MAX_REFUSAL_BYTES: u64 = 1024 * 1024;

/// A connection to a program beside a step.
pub(crate) struct ExecConnection {
    /// Frames in both directions.
    pub(crate) stream: ExecSocket,
    /// First bytes of the frames, which were read with the answer.
    pub(crate) first: Vec<u8>,
}

/// A socket, with or without TLS.
pub(crate) enum ExecSocket {
    /// A plain TCP connection.
    Plain(TcpStream),
    /// The plain end of a TLS tunnel.
    Secret(UnixStream),
}

impl ExecSocket {
    /// Clones the handle.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match self {
            ExecSocket::Plain(stream) => stream.try_clone().map(ExecSocket::Plain),
            ExecSocket::Secret(stream) => stream.try_clone().map(ExecSocket::Secret),
        }
    }

    /// Closes the connection for all handles.
    pub(crate) fn close(&self) {
        let _it_is_closed = match self {
            ExecSocket::Plain(stream) => stream.shutdown(Shutdown::Both),
            ExecSocket::Secret(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            ExecSocket::Plain(stream) => stream.set_read_timeout(limit),
            ExecSocket::Secret(stream) => stream.set_read_timeout(limit),
        }
    }
}

impl Read for ExecSocket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            ExecSocket::Plain(stream) => stream.read(bytes),
            ExecSocket::Secret(stream) => stream.read(bytes),
        }
    }
}

impl Write for ExecSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            ExecSocket::Plain(stream) => stream.write(bytes),
            ExecSocket::Secret(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            ExecSocket::Plain(stream) => stream.flush(),
            ExecSocket::Secret(stream) => stream.flush(),
        }
    }
}

impl Client {
    pub(crate) fn exec(
        &self,
        id: &str,
        rank: u32,
        wanted: &ExecRequest,
    ) -> Result<ExecConnection, ApiError> {
        let path = format!("/v1/steps/{}/exec?rank={rank}", segment(id));
        let body = serde_json::to_vec(wanted).map_err(|e| self.garbled(&e))?;
        self.frames(&path, body)
    }

    /// Connects to the standard input of a running step, or of its rank 0.
    pub(crate) fn input(&self, id: &str) -> Result<ExecConnection, ApiError> {
        self.frames(&format!("/v1/steps/{}/input", segment(id)), Vec::new())
    }

    /// Makes a call that becomes a connection of frames.
    fn frames(&self, path: &str, body: Vec<u8>) -> Result<ExecConnection, ApiError> {
        let lost = |error: io::Error| self.lost(&error);
        let mut stream = self.connect().map_err(lost)?;
        let request = self.upgrade_request(path, body);
        stream.write_all(&request).map_err(lost)?;
        let (head, first) = read_head(&mut stream).map_err(lost)?;
        let status = status_of(&head).ok_or_else(|| self.garbled(&"its answer is not HTTP"))?;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            // A program may be silent for any time.
            stream.set_read_timeout(None).map_err(lost)?;
            return Ok(ExecConnection { stream, first });
        }
        let mut body = first;
        let rest = length_of(&head).map_or(MAX_REFUSAL_BYTES, |length| {
            length
                .saturating_sub(body.len() as u64)
                .min(MAX_REFUSAL_BYTES)
        });
        let read = stream.take(rest).read_to_end(&mut body);
        read.map_err(lost)?;
        Err(ApiError::Refused {
            status: status.as_u16(),
            error: serde_json::from_slice(&body).map_or_else(
                |_| foreign_error(status, &body),
                |body: ErrorBody| body.error,
            ),
        })
    }

    /// Returns the error with which the coordinator closed the connection.
    pub(crate) fn closed(&self, json: &[u8]) -> ApiError {
        match serde_json::from_slice::<ErrorBody>(json) {
            // It came after the status line, so the status is that of its usual cause: a lost right.
            Ok(body) => ApiError::Refused {
                status: StatusCode::FORBIDDEN.as_u16(),
                error: body.error,
            },
            Err(error) => self.garbled(&error),
        }
    }

    fn connect(&self) -> io::Result<ExecSocket> {
        let tcp = self.connect_tcp()?;
        let context = self.context();
        let trust = ContextTls::of(context).map_err(io::Error::other)?;
        let Some(trust) = trust else {
            return Ok(ExecSocket::Plain(tcp));
        };
        let config = trust.for_connections().map_err(io::Error::other)?;
        let tunnel = tunnel::open(tcp, config, context.file.host(), ANSWER_LIMIT)?;
        tunnel.set_read_timeout(Some(ANSWER_LIMIT))?;
        Ok(ExecSocket::Secret(tunnel))
    }

    fn connect_tcp(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name does not resolve");
        for address in self.context.file.authority().to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_LIMIT) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn upgrade_request(&self, path: &str, body: Vec<u8>) -> Vec<u8> {
        let token = self.context.file.token.as_deref();
        let shown = token.map_or_else(String::new, |token| {
            format!("Authorization: Bearer {token}\r\n")
        });
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: {UPGRADE}\r\n{shown}\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.context.file.authority(),
            body.len()
        )
        .into_bytes();
        request.extend(body);
        request
    }
}

/// Reads the head of an answer, and the part of the body that came with it.
pub(crate) fn read_head(stream: &mut impl Read) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    // Start of the next search: the end of the head may begin in what was searched.
    let mut seen = 0;
    loop {
        let end = bytes[seen..]
            .windows(4)
            .position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let first = bytes.split_off(seen + end + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), first));
        }
        if bytes.len() > MAX_HEAD_BYTES {
            return Err(io::Error::other("its answer is too long"));
        }
        seen = bytes.len().saturating_sub(3);
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend(&chunk[..count]),
        }
    }
}

pub(crate) fn status_of(head: &str) -> Option<StatusCode> {
    let mut words = head.lines().next()?.split(' ');
    words
        .next()
        .filter(|version| version.starts_with("HTTP/1."))?;
    words.next()?.parse().ok()
}

pub(crate) fn length_of(head: &str) -> Option<u64> {
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let value = name
            .eq_ignore_ascii_case("content-length")
            .then_some(value)?;
        value.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_its_status_and_the_length_of_what_follows() {
        let head = "HTTP/1.1 409 Conflict\r\nServer: x\r\ncontent-length: 12\r\n\r\n";
        assert_eq!(status_of(head), Some(StatusCode::CONFLICT));
        assert_eq!(length_of(head), Some(12));
        for head in ["", "SSH-2.0-x", "HTTP/1.1", "HTTP/1.1 abc no"] {
            assert_eq!(status_of(head), None, "{head}");
        }
        assert_eq!(length_of("HTTP/1.1 101 x\r\n\r\n"), None);
    }
}
