use std::net::IpAddr;
use std::time::Duration;

use super::PasswordVerdict::{Busy, Right, Wrong};
use super::*;

/// Costs 4, so that a check takes a millisecond or two.
fn hashed(password: &str) -> BcryptHash {
    with_cost(password, 4)
}

fn with_cost(password: &str, cost: u32) -> BcryptHash {
    let salt = [7; 16];
    let mut key = password.as_bytes().to_vec();
    key.push(0);
    key.truncate(72);
    let digest = bcrypt::bcrypt(cost, salt, &key);
    BcryptHash::from_parts(cost, salt, digest)
}

fn users(list: &[(&str, BcryptHash)]) -> BasicAuthUsers {
    let users = list
        .iter()
        .map(|(name, hash)| ((*name).to_owned(), hash.clone()));
    users.collect()
}

fn peer(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

async fn ask(
    passwords: &Passwords,
    users: &BasicAuthUsers,
    from: u8,
    user: &str,
    password: &[u8],
) -> PasswordVerdict {
    passwords.check(users, peer(from), user, password).await
}

#[test]
fn hashes_of_other_tools_are_verified_in_each_version_of_bcrypt() {
    // The vectors of jBCrypt's tests, and one of htpasswd.
    let vectors = [
        (
            "",
            "$2a$06$DCq7YPn5Rq63x1Lad4cll.TV4S6ytwfsfvkgY8jIucDrjc8deX1s.",
        ),
        (
            "a",
            "$2a$06$m0CrhHm10qJ3lXRY.5zDGO3rS2KdeeWLuGmsfGlMfOxih58VYVfxe",
        ),
        (
            "abc",
            "$2a$06$If6bvum7DFjUnE9p2uDeDu0YHzrHM6tf.iqN8.yx.jNN1ILEf7h0i",
        ),
        (
            "fakepassword",
            "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi",
        ),
    ];
    for (password, hash) in vectors {
        for version in ["$2a$", "$2b$", "$2y$"] {
            let hash = BcryptHash::parse(&format!("{version}{}", &hash[4..])).unwrap();
            assert_eq!(
                hash.compute(password.as_bytes()),
                hash.digest(),
                "{password}"
            );
            assert_ne!(hash.compute(b"other"), hash.digest());
        }
    }
}

#[test]
fn a_hash_with_a_cost_below_4_or_above_16_is_refused() {
    let hash = |cost: u32| format!("$2b${cost:02}${}", "a".repeat(53));
    for cost in [0, 3, COST_MAX + 1, 31, 32, 99] {
        let why = BcryptHash::parse(&hash(cost)).unwrap_err();
        assert!(
            why.contains(&format!("the cost {cost} is not from 4 to 16")),
            "{why}"
        );
    }
    for cost in [4, COST_MAX] {
        assert_eq!(BcryptHash::parse(&hash(cost)).unwrap().cost(), cost);
    }
    let malformed = ["", "$2b$1a$x", "$2b$+4$", "$2b$4$", "$2b$10$é"];
    for text in malformed {
        assert!(BcryptHash::parse(text).is_err(), "{text}");
    }
    let odd = format!("$2b$10${}", "é".repeat(27));
    assert!(BcryptHash::parse(&odd).is_err());
}

#[tokio::test]
async fn a_right_password_is_computed_once_and_a_wrong_one_each_time() {
    let passwords = Passwords::default();
    let users = users(&[("alice", hashed("secret")), ("bob", hashed("other"))]);
    for _ in 0..3 {
        assert_eq!(ask(&passwords, &users, 1, "alice", b"secret").await, Right);
        assert_eq!(ask(&passwords, &users, 1, "bob", b"secret").await, Wrong);
        assert_eq!(ask(&passwords, &users, 1, "carol", b"secret").await, Wrong);
    }
    assert_eq!(passwords.rounds(), (1 + 3 * 2) << 4);
}

#[tokio::test]
async fn a_changed_or_removed_user_is_not_remembered() {
    let passwords = Passwords::default();
    let before = users(&[("alice", hashed("secret"))]);
    assert_eq!(ask(&passwords, &before, 1, "alice", b"secret").await, Right);
    let after = users(&[("alice", hashed("new")), ("bob", hashed("b"))]);
    assert_eq!(ask(&passwords, &after, 1, "alice", b"secret").await, Wrong);
    assert_eq!(ask(&passwords, &after, 1, "alice", b"new").await, Right);
    let removed = users(&[("bob", hashed("b"))]);
    assert_eq!(ask(&passwords, &removed, 1, "alice", b"new").await, Wrong);
    let again = passwords
        .check(&BasicAuthUsers::default(), peer(1), "alice", b"new")
        .await;
    assert_eq!(again, Wrong);
}

#[tokio::test]
async fn an_unknown_user_costs_what_a_known_one_costs() {
    let mixed = [
        ("a", with_cost("x", 4)),
        ("b", with_cost("x", 5)),
        ("c", with_cost("x", 6)),
    ];
    for list in [vec![("alice", with_cost("x", 5))], mixed.to_vec()] {
        let costs: Vec<u64> = list.iter().map(|(_, hash)| 1 << hash.cost()).collect();
        let users = users(&list);
        let mut seen = BTreeMap::new();
        let passwords = Passwords::default();
        for name in (0..40).map(|i| format!("nobody{i}")) {
            for password in ["one", "two"] {
                let before = passwords.rounds();
                let verdict = ask(&passwords, &users, 1, &name, password.as_bytes()).await;
                assert_eq!(verdict, Wrong);
                let rounds = passwords.rounds() - before;
                assert!(costs.contains(&rounds), "{rounds}");
                // A name has one cost, as a user has.
                assert_eq!(*seen.entry(name.clone()).or_insert(rounds), rounds);
            }
        }
        let distinct: std::collections::BTreeSet<u64> = seen.into_values().collect();
        assert_eq!(distinct.len(), costs.len(), "each cost has unknown users");
    }
}

#[tokio::test]
async fn user_hash_and_password_are_remembered_apart() {
    let passwords = Passwords::default();
    let users = users(&[("ab", hashed("c")), ("a", hashed("x"))]);
    assert_eq!(ask(&passwords, &users, 1, "ab", b"c").await, Right);
    assert_eq!(ask(&passwords, &users, 1, "a", b"bc").await, Wrong);
    assert_eq!(ask(&passwords, &users, 1, "ab", b"c\0").await, Wrong);
    assert_eq!(ask(&passwords, &users, 1, "ab", b"").await, Wrong);
    assert_eq!(ask(&passwords, &users, 1, "AB", b"c").await, Wrong);
}

/// As everywhere, bcrypt uses the first 72 bytes.
#[tokio::test]
async fn only_the_first_72_bytes_of_a_password_count() {
    let passwords = Passwords::default();
    let long = "p".repeat(72);
    let users = users(&[("alice", hashed(&long))]);
    let longer = format!("{long}more");
    assert_eq!(
        ask(&passwords, &users, 1, "alice", longer.as_bytes()).await,
        Right
    );
    let shorter = &long.as_bytes()[1..];
    assert_eq!(ask(&passwords, &users, 1, "alice", shorter).await, Wrong);
}

/// Starts checks that wait until the returned permit is dropped.
async fn flood(passwords: &Passwords, users: &BasicAuthUsers, from: u8, count: u32) {
    for i in 0..count {
        let (passwords, users) = (passwords.clone(), users.clone());
        let before = passwords.waiting();
        let asking = passwords.clone();
        tokio::spawn(async move {
            let wrong = format!("wrong {from} {i}");
            asking
                .check(&users, peer(from), "alice", wrong.as_bytes())
                .await
        });
        while passwords.waiting() == before {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_flood_of_wrong_passwords_is_bounded_and_starves_no_remembered_one() {
    let passwords = Passwords::default();
    let users = users(&[("alice", hashed("secret"))]);
    assert_eq!(ask(&passwords, &users, 1, "alice", b"secret").await, Right);
    let turn = passwords.0.turn.lock().await;
    // One client may take its share and no more.
    flood(&passwords, &users, 2, WAITING_MAX_PER_PEER).await;
    assert_eq!(ask(&passwords, &users, 2, "alice", b"more").await, Busy);
    // Remembered: not even from that client does it wait.
    assert_eq!(ask(&passwords, &users, 2, "alice", b"secret").await, Right);
    for from in 3..=5 {
        flood(&passwords, &users, from, WAITING_MAX_PER_PEER).await;
    }
    assert_eq!(passwords.waiting(), WAITING_MAX);
    assert_eq!(ask(&passwords, &users, 9, "alice", b"more").await, Busy);
    assert_eq!(ask(&passwords, &users, 9, "nobody", b"more").await, Busy);
    assert_eq!(ask(&passwords, &users, 9, "alice", b"secret").await, Right);
    drop(turn);
    let drained = async {
        while passwords.waiting() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let drained = tokio::time::timeout(Duration::from_secs(60), drained).await;
    assert!(drained.is_ok(), "those who wait get no turn");
    assert_eq!(ask(&passwords, &users, 9, "alice", b"more").await, Wrong);
    assert!(passwords.0.waiting.lock().is_empty());
}

#[tokio::test]
async fn a_client_that_hangs_up_frees_its_place_in_the_queue() {
    let passwords = Passwords::default();
    let users = users(&[("alice", hashed("secret"))]);
    let turn = passwords.0.turn.lock().await;
    let waits = passwords.check(&users, peer(1), "alice", b"secret");
    let gone = tokio::time::timeout(Duration::from_millis(5), waits).await;
    assert!(gone.is_err());
    assert_eq!(passwords.waiting(), 0);
    drop(turn);
    assert_eq!(ask(&passwords, &users, 1, "alice", b"secret").await, Right);
}

#[tokio::test]
async fn equal_passwords_that_wait_together_are_computed_once() {
    let passwords = Passwords::default();
    let users = users(&[("alice", hashed("secret"))]);
    let ask = || passwords.check(&users, peer(1), "alice", b"secret");
    assert_eq!(tokio::join!(ask(), ask(), ask()), (Right, Right, Right));
    assert_eq!(passwords.rounds(), 1 << 4);
}

#[test]
fn a_full_memory_of_passwords_forgets_the_oldest() {
    let digest = |i: usize| [i.to_le_bytes(); 4].concat().try_into().unwrap();
    let mut recent = VecDeque::new();
    for i in (0..RIGHT_MAX).chain([0, RIGHT_MAX]) {
        remember(&mut recent, digest(i));
    }
    assert_eq!(
        [0, 1, RIGHT_MAX].map(|i| recent.contains(&digest(i))),
        [false, true, true]
    );
}

#[tokio::test]
async fn nothing_secret_is_shown() {
    let passwords = Passwords::default();
    assert_eq!(format!("{passwords:?}"), "Passwords { .. }");
    assert_eq!(
        format!("{:?}", hashed("secret")),
        "BcryptHash { cost: 4, .. }"
    );
}

#[test]
fn a_password_may_contain_colons_and_any_bytes() {
    let decoded = |text: &[u8]| decode(&STANDARD.encode(text));
    let user = |password: &[u8]| Some(("user".to_owned(), password.to_vec()));
    assert_eq!(decoded(b"user:a:b"), user(b"a:b"));
    assert_eq!(decoded(b"user:\xff"), user(b"\xff"));
    assert_eq!(decoded(b"user:"), user(b""));
    assert_eq!(decoded(b"user"), None);
    assert_eq!(decoded(b"\xff:a"), None);
    assert_eq!(decode("%%%"), None);
}
