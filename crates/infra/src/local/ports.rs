//! Choosing ports.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Hands out ports: a chosen one as it is, 0 as a port that is free now. Never gives the same free port twice, so that
/// several proxies of this process do not meet; another process may still take one before the proxy binds it, which
/// shows as a failed start and is tried again.
#[derive(Debug, Default)]
pub struct Ports {
    given: Mutex<BTreeSet<u16>>,
}

impl Ports {
    /// Nothing handed out yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// `wanted`, or a free port of `ip` when that is 0.
    ///
    /// # Errors
    /// When the system has no free port on that address.
    pub fn choose(&self, ip: IpAddr, wanted: u16) -> io::Result<u16> {
        if wanted != 0 {
            return Ok(wanted);
        }
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        // Kept bound while looking, so that the system does not offer the same one again.
        let mut passed_over = Vec::new();
        loop {
            let listener = TcpListener::bind(SocketAddr::new(ip, 0))?;
            let port = listener.local_addr()?.port();
            if given.insert(port) {
                return Ok(port);
            }
            passed_over.push(listener);
        }
    }

    /// Gives a port back when its proxy is gone.
    pub fn give_back(&self, port: u16) {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).remove(&port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn chosen_ports_stay_and_free_ones_differ() {
        let ports = Ports::new();
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(ports.choose(ip, 19000).unwrap(), 19000);
        let free: BTreeSet<u16> = (0..50).map(|_| ports.choose(ip, 0).unwrap()).collect();
        assert_eq!(free.len(), 50);
        assert!(!free.contains(&0));
        for port in free {
            TcpListener::bind((ip, port)).expect("free");
            ports.give_back(port);
        }
    }
}
