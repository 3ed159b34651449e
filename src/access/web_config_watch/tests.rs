use std::sync::atomic::AtomicUsize;

use tokio::time::timeout;

use super::*;
use crate::access::tests::certificates::{TestDir, connect, dns, serve};

const TLS: &str = "tls_server_config: {cert_file: server.crt, key_file: server.key}\n";
const LONG: Duration = Duration::from_secs(30);

fn open(dir: &TestDir) -> Arc<WebConfigWatch> {
    WebConfigWatch::open(&dir.web()).unwrap()
}

/// The certificate that a client sees; each handshake must succeed.
async fn shown(watch: &WebConfigWatch, ca: &str) -> Vec<u8> {
    let in_force = watch.in_force();
    let (server, client) = tokio::io::duplex(64 << 10);
    let tls = in_force.tls.as_ref().unwrap();
    let (accepted, connected) = tokio::join!(serve(tls, server), connect(client, ca, None, |_| {}));
    accepted.unwrap();
    let stream = connected.unwrap();
    let (_, connection) = stream.get_ref();
    connection.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test]
async fn a_replaced_certificate_is_shown_to_the_next_client() {
    let dir = TestDir::new(TLS);
    let watch = open(&dir);
    let before = shown(&watch, &dir.ca.cert).await;
    dir.renew();
    timeout(LONG, watch.changed()).await.unwrap().unwrap();
    assert_ne!(shown(&watch, &dir.ca.cert).await, before);
    assert!(!watch.look().unwrap(), "nothing changed since");
}

#[tokio::test]
async fn a_certificate_without_its_key_changes_nothing_until_the_key_comes() {
    let dir = TestDir::new(TLS);
    let watch = open(&dir);
    let before = shown(&watch, &dir.ca.cert).await;
    let new = dir.ca.issue("server", &[dns("localhost")]);
    dir.write("server.crt", &new.cert);
    assert!(watch.look().is_err());
    assert_eq!(shown(&watch, &dir.ca.cert).await, before);
    dir.write("server.key", &new.key);
    assert!(watch.look().unwrap());
    assert_ne!(shown(&watch, &dir.ca.cert).await, before);
}

#[tokio::test]
async fn an_unusable_file_is_reported_once_for_each_change() {
    let dir = TestDir::new(TLS);
    let watch = open(&dir);
    let before = shown(&watch, &dir.ca.cert).await;
    let key = dir.read("server.key");
    for half in [key.len() / 2, key.len() / 3] {
        dir.write("server.key", &key[..half]);
        let error = timeout(LONG, watch.changed()).await.unwrap().unwrap_err();
        assert!(
            error.to_string().contains("tls_server_config.key_file"),
            "{error}"
        );
        for _ in 0..3 {
            assert!(!watch.look().unwrap());
        }
        assert_eq!(shown(&watch, &dir.ca.cert).await, before);
    }
    std::fs::remove_file(dir.path("server.key")).unwrap();
    assert!(watch.look().is_err());
    assert!(!watch.look().unwrap());
    dir.write("server.key", &key);
    assert!(watch.look().unwrap());
}

#[tokio::test]
async fn users_headers_and_limits_change_too() {
    let dir = TestDir::new("");
    let watch = open(&dir);
    assert!(watch.in_force().web.users.is_empty());
    let hash = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG";
    let more = "rate_limit: {interval: 1s, burst: 1}\nhttp_server_config: {headers: {X-Frame-Options: deny}}\n";
    dir.write(
        "web.yml",
        &format!("{TLS}basic_auth_users: {{alice: {hash}}}\n{more}"),
    );
    assert!(watch.look().unwrap());
    let now = watch.in_force();
    assert_eq!((now.web.users.len(), now.web.headers.len()), (1, 1));
    assert!(now.web.rate_limit.is_some() && now.tls.is_some());
    // A broken file does not open the door: users and TLS stay.
    dir.write("web.yml", "basic_auth_users: {");
    assert!(watch.look().is_err());
    assert_eq!(watch.in_force().web.users.len(), 1);
    std::fs::remove_file(dir.web()).unwrap();
    assert!(watch.look().is_err());
    let now = watch.in_force();
    assert!(now.web.users.len() == 1 && now.tls.is_some());
}

#[tokio::test]
async fn certificates_are_renewed_while_the_web_configuration_file_is_broken() {
    let dir = TestDir::new(TLS);
    let watch = open(&dir);
    let before = shown(&watch, &dir.ca.cert).await;
    dir.write("web.yml", "oops");
    assert!(watch.look().is_err());
    dir.renew();
    assert!(watch.look().is_err());
    assert_ne!(shown(&watch, &dir.ca.cert).await, before);
}

#[tokio::test]
async fn a_file_that_is_cut_off_anywhere_opens_nothing() {
    const USERS: &str =
        "basic_auth_users:\n  a: $2b$10$oP/8H2s6QPZnQyBJTQhK9.1nIE8g9gYKHDY0DWcCfpZtH8KyOqjSa\n";
    const CLIENTS: &str = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n  \
        client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n  client_allowed_sans:\n  - a\n";
    for whole in [format!("{USERS}{CLIENTS}"), format!("{CLIENTS}{USERS}")] {
        let dir = TestDir::new(&whole);
        let watch = open(&dir);
        for end in 0..whole.len() {
            dir.write("web.yml", &whole[..end]);
            let _refused = watch.look();
            let web = watch.in_force().web.clone();
            assert!(!web.users.is_empty(), "{}", &whole[..end]);
            let trusted = web.trusted();
            let names = trusted.and_then(|trusted| trusted.allowed_sans.as_ref());
            assert!(names.is_some(), "{}", &whole[..end]);
        }
    }
}

#[tokio::test]
async fn a_secret_volumes_swapped_link_is_a_change() {
    let dir = TestDir::new("tls_server_config: {cert_file: ..data/crt, key_file: ..data/key}\n");
    let publish = |version: &str| {
        dir.renew();
        std::fs::create_dir(dir.path(version)).unwrap();
        std::fs::rename(dir.path("server.crt"), dir.path(version).join("crt")).unwrap();
        std::fs::rename(dir.path("server.key"), dir.path(version).join("key")).unwrap();
        std::os::unix::fs::symlink(version, dir.path("new")).unwrap();
        std::fs::rename(dir.path("new"), dir.path("..data")).unwrap();
    };
    publish("..v1");
    let watch = open(&dir);
    let before = shown(&watch, &dir.ca.cert).await;
    publish("..v2");
    assert!(watch.look().unwrap());
    assert_ne!(shown(&watch, &dir.ca.cert).await, before);
}

#[tokio::test]
async fn what_is_read_again_is_in_force_or_says_what_is_wrong() {
    let dir = TestDir::new(TLS);
    let watch = open(&dir);
    watch.read_again().unwrap();
    dir.write("server.crt", "");
    let error = watch.read_again().unwrap_err().to_string();
    assert!(error.contains("server.crt holds no certificate"), "{error}");
    assert!(watch.in_force().tls.is_some());
    assert!(!watch.look().unwrap(), "the change was reported");
    assert!(WebConfigWatch::open(&dir.web()).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_handshake_fails_while_files_are_replaced() {
    let dir = Arc::new(TestDir::new(TLS));
    let watch = open(&dir);
    let handshakes = Arc::new(AtomicUsize::new(0));
    let clients = tokio::spawn({
        let (dir, watch, handshakes) = (Arc::clone(&dir), watch.clone(), Arc::clone(&handshakes));
        async move {
            loop {
                shown(&watch, &dir.ca.cert).await;
                handshakes.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let mut changes = 0;
    for round in 0..60 {
        if round % 3 == 0 {
            // In place and in two writes, as the worst of tools does.
            let new = dir.ca.issue("server", &[dns("localhost")]);
            let (begin, end) = new.cert.split_at(new.cert.len() / 2);
            std::fs::write(dir.path("server.crt"), begin).unwrap();
            drop(watch.look());
            std::fs::write(dir.path("server.crt"), format!("{begin}{end}")).unwrap();
            drop(watch.look());
            dir.write("server.key", &new.key);
        } else {
            dir.renew();
        }
        if watch.look().is_ok_and(|is_new| is_new) {
            changes += 1;
        }
        assert!(!clients.is_finished(), "a handshake failed");
    }
    let enough = async {
        while handshakes.load(Ordering::Relaxed) < 60 {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, enough).await.unwrap();
    assert!(!clients.is_finished());
    clients.abort();
    assert!(changes >= 55, "{changes}");
}
