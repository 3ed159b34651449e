use std::fs::File;
use std::os::unix::fs::symlink;

use super::*;

const HEAD: &str = "kind: KubeletConfiguration\n";

/// A host's file system with one process for each command line.
fn host(processes: &[(u32, &str)]) -> tempfile::TempDir {
    let host = tempfile::tempdir().unwrap();
    for (pid, line) in processes {
        let dir = host.path().join("proc").join(pid.to_string());
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cmdline"), line.replace(' ', "\0") + "\0").unwrap();
    }
    host
}

fn write(host: &tempfile::TempDir, path: &str, text: &str) {
    let path = host.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

type Read = (Vec<(String, Result<String, String>)>, Option<String>);

fn read_files(host: &tempfile::TempDir) -> Read {
    match process(host.path()) {
        Process::Seen { files, .. } => {
            let is_dir = |it: &ConfigFile| it.content.is_err() && it.path.ends_with("k.d");
            let (dirs, files): (Vec<_>, Vec<_>) = files.into_iter().partition(is_dir);
            let files = files.into_iter().map(|it| (it.path, it.content));
            let problem = dirs.into_iter().find_map(|it| it.content.err());
            (files.collect(), problem)
        }
        other @ (Process::Hidden | Process::Unread(_) | Process::Within(_)) => panic!("{other:?}"),
    }
}

#[test]
fn the_kubelet_is_found_by_its_name_and_not_in_a_pod() {
    let host = host(&[
        (1, "/sbin/init"),
        (30, "/bin/kubelet --in-a-pod"),
        (40, "/usr/bin/kubelet --a=1"),
    ]);
    write(
        &host,
        "proc/30/cgroup",
        "0::/kubepods.slice/kubepods-pod1.slice\n",
    );
    write(
        &host,
        "proc/40/cgroup",
        "0::/system.slice/kubelet.service\n",
    );
    write(&host, "proc/meminfo", "MemTotal: 1\n");
    let found = process(host.path());
    let Process::Seen { pid, args, files } = found else {
        panic!("{found:?}")
    };
    assert_eq!(pid, 40);
    assert_eq!(args, ["/usr/bin/kubelet", "--a=1"]);
    assert!(files.is_empty());
}

#[test]
fn a_kubelet_outside_systemd_is_in_no_pod() {
    for (group, is_the_kubelet) in [
        // Talos, and OpenRC; also as a pod sees them.
        ("/podruntime/kubelet", true),
        ("/../../../podruntime/kubelet", true),
        ("/../../../openrc.kubelet", true),
        ("/../../../../system.slice/kubelet.service", true),
        ("/../../../besteffort/pod1/2", false),
        ("/../../pod1/2/system.slice/kubelet.service", false),
        ("/../../kubepods-pod1.slice/crio-2.scope", false),
        ("/../2", false),
        ("/../2/system.slice/kubelet.service", false),
    ] {
        let host = host(&[(9, "/usr/local/bin/kubelet --config=/x")]);
        write(&host, "proc/9/cgroup", &format!("0::{group}\n"));
        let is_seen = matches!(process(host.path()), Process::Seen { .. });
        assert_eq!(is_seen, is_the_kubelet, "{group}");
    }
}

#[test]
fn a_kubelet_within_another_program_is_told() {
    for (line, program) in [
        ("/usr/local/bin/k3s agent", "k3s"),
        ("/snap/microk8s/1/kubelite --x", "kubelite"),
    ] {
        let host = host(&[(9, line)]);
        assert_eq!(process(host.path()), Process::Within(program));
    }
    // k0s and RKE2 start a kubelet of its own.
    let host = host(&[
        (9, "/usr/bin/k3s server"),
        (12, "/var/lib/k0s/bin/kubelet --config=/x"),
    ]);
    assert!(matches!(
        process(host.path()),
        Process::Seen { pid: 12, .. }
    ));
}

#[test]
fn the_file_and_the_drop_ins_are_read_in_the_kubelets_order() {
    let host = host(&[(5, "kubelet --config=/etc/k.yaml --config-dir /etc/k.d")]);
    for (path, text) in [
        ("etc/k.yaml", "main"),
        ("etc/k.d/20-b.conf", "b"),
        ("etc/k.d/10-a.conf", "a"),
        ("etc/k.d/15/x.conf", "x"),
        ("etc/k.d/notes.txt", "no drop-in"),
    ] {
        write(&host, path, text);
    }
    let (files, problem) = read_files(&host);
    let files: Vec<_> = files
        .iter()
        .map(|(path, text)| (&**path, text.as_deref().unwrap()))
        .collect();
    assert_eq!(
        files,
        [
            ("/etc/k.yaml", "main"),
            ("/etc/k.d/10-a.conf", "a"),
            ("/etc/k.d/15/x.conf", "x"),
            ("/etc/k.d/20-b.conf", "b"),
        ]
    );
    assert_eq!(problem, None);
}

#[test]
fn links_are_followed_on_the_host_and_never_out_of_it() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    let host = host(&[(5, "kubelet --config=/etc/link --config-dir=/etc/k.d")]);
    write(&host, "etc/k.d/a.conf", "a");
    write(&host, "var/k.yaml", HEAD);
    let link = host.path().join("etc/link");
    // An absolute link is the host's.
    symlink("/var/k.yaml", &link).unwrap();
    assert_eq!(read_files(&host).0[0].1.as_deref(), Ok(HEAD));
    for target in [
        outside.path().join("secret"),
        PathBuf::from("../../../../../..")
            .join(outside.path().strip_prefix("/").unwrap())
            .join("secret"),
        PathBuf::from("/proc/self/root")
            .join(outside.path().strip_prefix("/").unwrap())
            .join("secret"),
    ] {
        fs::remove_file(&link).unwrap();
        symlink(&target, &link).unwrap();
        let (files, _) = read_files(&host);
        assert!(files[0].1.is_err(), "{target:?}: {files:?}");
    }
    fs::remove_dir_all(host.path().join("etc/k.d")).unwrap();
    symlink(outside.path(), host.path().join("etc/k.d")).unwrap();
    fs::write(outside.path().join("b.conf"), "secret").unwrap();
    let (files, problem) = read_files(&host);
    assert!(files.len() == 1 && problem.is_some(), "{files:?}");
}

#[test]
fn what_is_large_endless_or_no_file_is_told_and_left() {
    let host = host(&[(5, "kubelet --config=/etc/k.yaml --config-dir=/etc/k.d")]);
    write(&host, "etc/k.d/x.conf", "");
    let path = host.path().join("etc/k.yaml");
    File::create(&path).unwrap().set_len(100 << 20).unwrap();
    let content = |host: &tempfile::TempDir| read_files(host).0.remove(0).1.unwrap_err();
    assert_eq!(content(&host), "it is larger than 1048576 bytes");
    fs::remove_file(&path).unwrap();
    // A pipe without a writer would wait for ever.
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert_eq!(content(&host), "it is not a regular file");
    fs::remove_file(&path).unwrap();
    assert!(content(&host).contains("No such file"));
    fs::write(&path, b"\xff\xfe").unwrap();
    assert!(content(&host).contains("UTF-8"));
    for number in 0..300 {
        write(&host, &format!("etc/k.d/{number}.conf"), "");
    }
    let (files, problem) = read_files(&host);
    assert!(files.len() <= 1 + DROP_INS_MAX && problem.unwrap().contains("more than 256 entries"));
}

#[test]
fn relative_paths_are_not_guessed() {
    let host = host(&[(5, "kubelet --config=k.yaml --config-dir=k.d")]);
    let (files, problem) = read_files(&host);
    assert!(files[0].1.as_ref().unwrap_err().contains("relative"));
    assert!(problem.unwrap().contains("relative"));
}

#[test]
fn the_search_of_a_crowded_process_table_has_an_end() {
    let host = host(&[(5, "kubelet"), (6, "kubelet")]);
    let late = search(&host.path().join("proc"), host.path(), Instant::now());
    assert!(late.is_err_and(|why| why.contains("first 0 entries")));
}
