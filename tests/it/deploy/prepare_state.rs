//! `crisweep prepare-state`, the init step of the pods: with one capability it gives the state directory to another
//! user, whoever owns it; and root without any capability removes logs, as the pods with logs do.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Output;

use tokio::process::Command;

/// Runs the program's init step as root with these capabilities, without any way to get more.
async fn prepare(capabilities: &str, owner: &str, dir: &Path) -> Output {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "0", "--regid", "0", "--clear-groups"]);
    for set in ["--inh-caps", "--bounding-set"] {
        command.args([set, capabilities]);
    }
    command.args(["--no-new-privs", env!("CARGO_BIN_EXE_crisweep")]);
    command
        .args(["prepare-state", "--owner", owner])
        .arg(dir)
        .output()
        .await
        .unwrap()
}

fn owner_and_mode(path: &Path) -> (u32, u32, u32) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777)
}

fn set(path: &Path, uid: u32, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    chown(path, Some(uid), Some(0)).unwrap();
}

#[tokio::test]
async fn root_with_one_capability_gives_the_directory_to_any_user_and_back() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: changing the user needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // As the kubelet makes a missing host path.
    let state = dir.path().join("state");
    fs::create_dir(&state).unwrap();
    set(&state, 0, 0o755);
    let done = prepare("-all,+chown", "65532:0", &state).await;
    assert!(done.status.success(), "{done:?}");
    assert_eq!(owner_and_mode(&state), (65532, 0, 0o700));

    // What the service of that user leaves, and what it must not be able to have given away.
    let outside = dir.path().join("outside");
    fs::write(&outside, "").unwrap();
    let second = dir.path().join("second");
    fs::write(&second, "").unwrap();
    let [database, below] = ["crisweep.db", "below"].map(|name| state.join(name));
    fs::write(&database, "").unwrap();
    set(&database, 65532, 0o600);
    fs::create_dir(&below).unwrap();
    symlink(&outside, state.join("link")).unwrap();
    fs::hard_link(&second, state.join("second")).unwrap();
    let done = prepare("-all,+chown", "0:0", &state).await;
    let said = String::from_utf8(done.stdout.clone()).unwrap();
    assert!(done.status.success(), "{done:?}");
    assert!(said.contains("and 1 file in it belong to 0:0"), "{said}");
    assert_eq!(owner_and_mode(&state), (0, 0, 0o700));
    assert_eq!(owner_and_mode(&database), (0, 0, 0o600));

    let done = prepare("-all,+chown", "65532:0", &state).await;
    assert!(done.status.success(), "{done:?}");
    for (path, uid) in [(&database, 65532), (&below, 0), (&outside, 0), (&second, 0)] {
        assert_eq!(owner_and_mode(path).0, uid, "{}", path.display());
    }
    assert_eq!(owner_and_mode(&state.join("link")).0, 0);
}

#[tokio::test]
async fn without_the_capability_or_the_directory_it_fails_and_says_so() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: changing the user needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [state, link, missing] = ["state", "link", "missing"].map(|name| dir.path().join(name));
    fs::create_dir(&state).unwrap();
    symlink(&state, &link).unwrap();
    for (capabilities, path, wanted) in [
        ("-all", &state, "Operation not permitted"),
        ("-all,+chown", &missing, "No such file or directory"),
        ("-all,+chown", &link, "Not a directory"),
    ] {
        let done = prepare(capabilities, "65532:0", path).await;
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{said}");
        assert!(said.contains(wanted), "{said}");
    }
    assert_eq!(owner_and_mode(&state).0, 0);
}

#[tokio::test]
async fn a_directory_of_others_stays_as_it_was() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: changing the user needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let etc = dir.path().join("etc");
    fs::create_dir(&etc).unwrap();
    let passwd = etc.join("passwd");
    // A lock is no proof: other programs have one too.
    for file in [&passwd, &etc.join("lock")] {
        fs::write(file, "").unwrap();
        set(file, 0, 0o644);
    }
    set(&etc, 1000, 0o755);
    let done = prepare("-all,+chown", "65532:0", &etc).await;
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1), "{said}");
    let wanted = "it is no state directory: it holds \"passwd\" and no crisweep.db";
    assert!(said.contains(wanted), "{said}");
    assert_eq!(owner_and_mode(&etc), (1000, 0, 0o755));
    assert_eq!(owner_and_mode(&passwd), (0, 0, 0o644));

    // What a first start on a full disk leaves.
    fs::remove_file(&passwd).unwrap();
    fs::create_dir(etc.join("lost+found")).unwrap();
    let done = prepare("-all,+chown", "65532:0", &etc).await;
    assert!(done.status.success(), "{done:?}");
    assert_eq!(owner_and_mode(&etc), (65532, 0, 0o700));
}
