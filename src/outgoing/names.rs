//! Looks host names up, a few at a time: a name server that hangs takes few threads.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::system::blocking::{BlockingPool, NoAnswer};

/// Lookups of one client at a time, which is also the number of threads that may hang.
const LOOKUPS_MAX: usize = 2;
/// Timeout of one lookup.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Looks names up. Cloning shares the threads.
#[derive(Clone, Debug)]
pub(super) struct Lookups {
    threads: BlockingPool,
    find: fn(&str) -> io::Result<Vec<SocketAddr>>,
}

impl Default for Lookups {
    fn default() -> Self {
        Self {
            threads: BlockingPool::new(LOOKUPS_MAX),
            // Port 0 stands for the URL's.
            find: |host| Ok((host, 0).to_socket_addrs()?.collect()),
        }
    }
}

impl Lookups {
    /// Returns the addresses of a host; an address is its own, and needs no thread.
    async fn addresses(&self, host: String) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![(address, 0).into()]);
        }
        let find = self.find;
        let found = self.threads.run(TIMEOUT, move || find(&host)).await;
        found.unwrap_or_else(|no_answer| Err(io::Error::other(words(no_answer))))
    }
}

fn words(no_answer: NoAnswer) -> String {
    match no_answer {
        NoAnswer::Timeout(after) => format!(
            "the name server does not answer within {}",
            humantime::format_duration(after)
        ),
        NoAnswer::Hangs => "the name server still owes earlier answers".to_owned(),
        NoAnswer::Failed => "a thread for the name server failed".to_owned(),
    }
}

/// Resolves names for reqwest.
pub(super) struct Resolver {
    pub(super) lookups: Lookups,
    /// The host to look up whatever the name is: the URL has the certificate's name in its place.
    pub(super) host: Option<String>,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = self.host.clone();
        let host = host.unwrap_or_else(|| name.as_str().to_owned());
        let lookups = self.lookups.clone();
        Box::pin(async move {
            let found = lookups.addresses(host).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

    fn hangs(_host: &str) -> io::Result<Vec<SocketAddr>> {
        LOOKUPS.fetch_add(1, Ordering::SeqCst);
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn a_name_server_that_hangs_takes_two_threads() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let lookups = Lookups {
                find: hangs,
                ..Lookups::default()
            };
            let find = |host: &str| lookups.addresses(host.to_owned());
            let all = join_all((0..20).map(|_| find("name.example")));
            // While a thread works the clock moves by itself no more.
            let later = async {
                tokio::task::yield_now().await;
                tokio::time::advance(TIMEOUT).await;
            };
            let (all, ()) = tokio::join!(all, later);
            assert!(all.iter().all(Result::is_err), "{all:?}");
            let error = find("other.example").await.unwrap_err().to_string();
            assert!(error.contains("still owes"), "{error}");
            assert!(LOOKUPS.load(Ordering::SeqCst) <= LOOKUPS_MAX);
            for address in ["10.0.0.1", "2001:db8::1"] {
                let found = find(address).await.unwrap();
                assert_eq!(found, [(address.parse::<IpAddr>().unwrap(), 0).into()]);
            }
        });
        runtime.shutdown_background();
    }

    #[tokio::test]
    async fn a_name_is_looked_up() {
        let found = Lookups::default().addresses("localhost".to_owned()).await;
        let found = found.unwrap();
        assert!(
            found
                .iter()
                .all(|it| it.ip().is_loopback() && it.port() == 0)
        );
        assert!(!found.is_empty());
    }
}
