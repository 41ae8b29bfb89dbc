//! Answers `GET /metrics` on a port of 127.0.0.1, and nothing else.
//!
//! One thread and at most [`MOST`] connections, none of which it waits for: each has [`REQUEST_TIMEOUT`] to ask and to listen, a
//! request is bounded, and one connection too many closes the oldest.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use feedline_shm::Doorbell;
use feedline_shm::fork::Unshared;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{CONTENT_TYPE, Exporter, ReadStats, text};
use crate::error::Error;
use crate::explain::Explanation;
use crate::stats::ServerStats;

/// Connections at a time.
const MOST: usize = 16;
/// How long a connection may last.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest request, with all its headers.
const LONGEST: usize = 16 << 10;
/// How long a port may take to become free when the process that had it was killed just now.
const FREED: Duration = Duration::from_secs(1);

/// A port that we listen on; nobody answers yet.
#[derive(Debug)]
pub struct HttpExporter {
    listener: Unshared<TcpListener>,
    number: u16,
}

impl HttpExporter {
    /// Takes a port of 127.0.0.1; 0 is any that is free.
    pub fn open(number: u16) -> Result<Self, Error> {
        let fail = |error: std::io::Error| {
            let taken = error.kind() == ErrorKind::AddrInUse;
            let why = if taken { "another process has that port".to_owned() } else { error.to_string() };
            let what = format!("cannot answer Prometheus on 127.0.0.1:{number}: {why}");
            Error::Invalid(Explanation::new(what).hint("choose another port, or 0 for any that is free"))
        };
        let began = Instant::now();
        let listener = loop {
            match TcpListener::bind((Ipv4Addr::LOCALHOST, number)) {
                Err(error) if error.kind() == ErrorKind::AddrInUse && began.elapsed() < FREED => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                bound => break bound.map_err(fail)?,
            }
        };
        let listener = Unshared::new(listener);
        listener.set_nonblocking(true).map_err(fail)?;
        let number = listener.local_addr().map_err(fail)?.port();
        Ok(Self { listener, number })
    }

    /// The port's number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Answers from now on.
    pub fn serve(self, read_stats: ReadStats) -> Result<Exporter, Error> {
        Exporter::start("feedline-metrics", move |bell| {
            HttpServer { listener: &self.listener, bell, read_stats, connections: Vec::new(), deaf_until: None }.run();
            // Frees the port, even if another process has the descriptor.
            let _ = rustix::net::shutdown(self.listener.as_fd(), rustix::net::Shutdown::Both);
        })
    }
}

struct HttpServer<'a> {
    listener: &'a TcpListener,
    bell: &'a Doorbell,
    read_stats: ReadStats,
    connections: Vec<Connection>,
    /// Set when there were no descriptors left for a connection: when to accept again.
    deaf_until: Option<Instant>,
}

/// A connection: it sends a request, gets an answer, and is closed.
struct Connection {
    stream: TcpStream,
    until: Instant,
    asked: Vec<u8>,
    answer: Option<Vec<u8>>,
    sent: usize,
}

impl HttpServer<'_> {
    fn run(&mut self) {
        while !self.sleep() {
            self.accept();
            let read_stats = &mut self.read_stats;
            self.connections.retain_mut(|connection| connection.goes_on(read_stats));
        }
    }

    /// Waits until there is something to do; true if this is the end.
    fn sleep(&self) -> bool {
        let now = Instant::now();
        let deadline = self.connections.iter().map(|connection| connection.until).chain(self.deaf_until).min();
        let timeout = deadline.and_then(|at| Timespec::try_from(at.saturating_duration_since(now)).ok());
        let mut fds = vec![PollFd::new(self.bell, PollFlags::IN)];
        for connection in &self.connections {
            let interest = if connection.answer.is_some() { PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::new(&connection.stream, interest));
        }
        if self.deaf_until.is_none_or(|until| until <= now) {
            fds.push(PollFd::new(self.listener, PollFlags::IN));
        }
        let _ = poll(&mut fds, timeout.as_ref());
        !fds[0].revents().is_empty()
    }

    fn accept(&mut self) {
        let now = Instant::now();
        if self.deaf_until.is_some_and(|until| now < until) {
            return;
        }
        self.deaf_until = None;
        // After that, the connections that exist have their turn.
        for _ in 0..MOST {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => continue,
                Err(_) => {
                    self.deaf_until = Some(now + Duration::from_secs(1));
                    return;
                }
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.connections.len() == MOST {
                self.connections.remove(0);
            }
            self.connections.push(Connection {
                stream,
                until: now + REQUEST_TIMEOUT,
                asked: Vec::new(),
                answer: None,
                sent: 0,
            });
        }
    }
}

impl Connection {
    /// Goes on as far as possible without waiting; false if it is over.
    fn goes_on(&mut self, read_stats: &mut ReadStats) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        if self.answer.is_none() {
            match self.read_request() {
                Ok(true) => self.answer = Some(answer(&self.asked, read_stats)),
                Ok(false) => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        while let Some(answer) = &self.answer {
            match self.stream.write(&answer[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
            if self.sent >= answer.len() {
                // A forked child may hold the connection open: closing ours would not end it.
                let _ = self.stream.shutdown(Shutdown::Both);
                return false;
            }
        }
        true
    }

    /// Reads what is there. Tells whether that is a whole request, or too long for one.
    fn read_request(&mut self) -> std::io::Result<bool> {
        let mut part = [0; 2048];
        loop {
            match self.stream.read(&mut part) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.asked.extend_from_slice(&part[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if is_whole(&self.asked) || self.asked.len() > LONGEST {
                return Ok(true);
            }
        }
    }
}

fn is_whole(asked: &[u8]) -> bool {
    asked.windows(4).any(|end| end == b"\r\n\r\n") || asked.windows(2).any(|end| end == b"\n\n")
}

/// Whether a request names this machine, or no host at all: a page from elsewhere, under a name that was made to point here, gets
/// nothing.
fn is_for_us(asked: &[u8]) -> bool {
    let head = String::from_utf8_lossy(asked);
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(name, _)| name.eq_ignore_ascii_case("host")).is_none_or(|(_, host)| is_own_host(host.trim()))
}

/// Whether a `Host` is a name of this machine's own.
pub fn is_own_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

fn answer(asked: &[u8], read_stats: &mut dyn FnMut() -> Vec<ServerStats>) -> Vec<u8> {
    let line = asked.split(|&byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let words: Vec<&str> = std::str::from_utf8(line).unwrap_or_default().split(' ').collect();
    let (status, body) = match words[..] {
        [..] if !is_whole(asked) => ("431 Request Header Fields Too Large", "the request is too long\n".to_owned()),
        [method, target, version] if version.starts_with("HTTP/1.") => {
            let path = target.split('?').next().unwrap_or_default();
            match (method, path) {
                _ if !is_for_us(asked) => ("403 Forbidden", "ask for localhost\n".to_owned()),
                ("GET" | "HEAD", "/metrics") => ("200 OK", text(&read_stats())),
                ("GET" | "HEAD", _) => ("404 Not Found", "the numbers are at /metrics\n".to_owned()),
                _ => ("405 Method Not Allowed", "only GET is answered\n".to_owned()),
            }
        }
        _ => ("400 Bad Request", "this is not HTTP/1.1\n".to_owned()),
    };
    let kind = if status.starts_with("200") { CONTENT_TYPE } else { "text/plain; charset=utf-8" };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    );
    let body = if words.first() == Some(&"HEAD") { "" } else { &body };
    [head.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_decides_the_answer() {
        let mut reads = 0;
        let mut ask = |asked: &[u8]| {
            let mut read_stats = || {
                reads += 1;
                vec![ServerStats { name: "a".into(), ..ServerStats::default() }]
            };
            let answer = String::from_utf8(answer(asked, &mut read_stats)).unwrap();
            (answer.split("\r\n").next().unwrap().to_owned(), answer.contains("feedline_up{"))
        };
        let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &vec![b'x'; LONGEST]].concat();
        for (asked, status, has_numbers) in [
            (b"GET /metrics HTTP/1.1\r\nHost: localhost:9464\r\n\r\n".as_slice(), "200 OK", true),
            (b"GET /metrics HTTP/1.1\r\nhost: elsewhere.example\r\n\r\n", "403 Forbidden", false),
            (b"GET /metrics?x=1 HTTP/1.0\n\n", "200 OK", true),
            (b"HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK", false),
            (b"GET / HTTP/1.1\r\n\r\n", "404 Not Found", false),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed", false),
            (b"GET /metrics\r\n\r\n", "400 Bad Request", false),
            (b"\xff\xfe \x00 HTTP/1.1\r\n\r\n", "400 Bad Request", false),
            (b"\r\n\r\n", "400 Bad Request", false),
            (&long, "431 Request Header Fields Too Large", false),
        ] {
            assert_eq!(ask(asked), (format!("HTTP/1.1 {status}"), has_numbers), "{}", String::from_utf8_lossy(asked));
        }
        assert_eq!(reads, 3, "numbers are read only for an answer that has them");
    }
}
