//! The address that the page is served on.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

use crate::output::Failed;

/// How many ports are tried, from the one that was asked for.
const TRIES: u16 = 100;

/// Listens on the first free port from `port` on; on any, if it is 0.
pub(super) fn listen(host: &str, port: u16) -> anyhow::Result<TcpListener> {
    let address = resolve(host)?;
    let last = port.saturating_add(if port == 0 { 0 } else { TRIES - 1 });
    for port in port..=last {
        match TcpListener::bind(SocketAddr::new(address.ip(), port)) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => return Err(refused(host, port, &error).into()),
        }
    }
    Err(Failed(format!(
        "no free port on {host}: {port} to {last} are all taken\n  \
         choose another one: feedline dashboard --port N; or any that is free: --port 0"
    ))
    .into())
}

/// A name may have several addresses; the first one counts.
fn resolve(host: &str) -> Result<SocketAddr, Failed> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let unknown = |why: &str| {
        Failed(format!(
            "cannot find the host {host:?}: {why}\n  \
             give --host an address of this machine: 127.0.0.1 for this machine only, 0.0.0.0 for all that can reach it"
        ))
    };
    let mut addresses = (bare, 0).to_socket_addrs().map_err(|error| unknown(&error.to_string()))?;
    addresses.next().ok_or_else(|| unknown("it has no address"))
}

fn refused(host: &str, port: u16, error: &std::io::Error) -> Failed {
    Failed(match error.kind() {
        ErrorKind::PermissionDenied => format!(
            "may not listen on port {port}: {error}\n  \
             ports below 1024 are the administrator's; take another one: feedline dashboard --port 8787"
        ),
        ErrorKind::AddrNotAvailable => format!(
            "cannot listen on {host}: this machine does not have that address\n  \
             give --host one of its own (`ip addr` lists them), or 0.0.0.0 for all of them"
        ),
        _ => format!(
            "cannot listen on {host}, port {port}: {error}\n  try another address or port: --host 127.0.0.1 --port 8787"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_port_is_taken_when_one_is_in_use() {
        let first = listen("127.0.0.1", 0).unwrap();
        let port = first.local_addr().unwrap().port();
        if port < u16::MAX - TRIES {
            let second = listen("127.0.0.1", port).unwrap();
            assert!(second.local_addr().unwrap().port() > port);
        }
    }

    #[test]
    fn an_address_may_stand_in_brackets() {
        for host in ["::1", "[::1]"] {
            assert!(resolve(host).unwrap().ip().is_loopback(), "{host}");
        }
    }

    #[test]
    fn ports_that_are_all_taken_are_reported() {
        let _held = TcpListener::bind(("127.0.0.1", u16::MAX));
        let error = listen("127.0.0.1", u16::MAX).unwrap_err().to_string();
        assert_eq!(
            error,
            "no free port on 127.0.0.1: 65535 to 65535 are all taken\n  \
             choose another one: feedline dashboard --port N; or any that is free: --port 0"
        );
    }

    #[test]
    fn ports_of_the_administrator_are_reported() {
        let Failed(text) = refused("127.0.0.1", 80, &ErrorKind::PermissionDenied.into());
        assert!(text.starts_with("may not listen on port 80: permission denied\n  ports below 1024"), "{text}");
    }

    #[test]
    fn what_cannot_be_listened_on_is_reported() {
        // An address of a network that is reserved for documentation.
        let error = listen("192.0.2.1", 8787).unwrap_err().to_string();
        assert!(error.contains("does not have that address\n  give --host"), "{error}");
        let error = listen("no host has a blank", 8787).unwrap_err().to_string();
        assert!(error.contains("cannot find the host") && error.contains("\n  give --host"), "{error}");
    }
}
