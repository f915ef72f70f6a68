//! IPAM, compared with the CNI project's own `host-local`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use host::ipam::{Error, Owner, Pool, Range, Reservation};
use testkit::Scratch;
use testkit::process::run;

const HOST_LOCAL: &str = "/usr/lib/cni/host-local";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn range(subnet: &str, gateway: &str) -> Range {
    Range::new(subnet.parse().unwrap(), None, None, vec![ip(gateway)]).unwrap()
}

/// Addresses 10.10.0.2 to 10.10.0.6, and a large IPv6 range.
fn pool(scratch: &Scratch) -> Pool {
    let ranges = vec![range("10.10.0.0/29", "10.10.0.1"), range("fd00:10::/64", "fd00:10::1")];
    Pool::open(&directory(scratch), ranges).unwrap()
}

fn directory(scratch: &Scratch) -> std::path::PathBuf {
    scratch.path().join("networks").join("antrea")
}

fn owner(container: &str) -> Owner {
    Owner::new(container, "eth0")
}

fn v4(pool: &Pool, container: &str) -> String {
    pool.allocate(&owner(container)).unwrap()[0].to_string()
}

#[test]
fn addresses_are_allocated_in_turn_and_reused_late() {
    let scratch = Scratch::new().unwrap();
    let pool = pool(&scratch);
    assert_eq!(pool.allocate(&owner("a")).unwrap(), [ip("10.10.0.2"), ip("fd00:10::2")]);
    assert_eq!(v4(&pool, "b"), "10.10.0.3");
    assert_eq!(pool.release(&owner("a")).unwrap(), [ip("10.10.0.2"), ip("fd00:10::2")]);
    assert_eq!(v4(&pool, "c"), "10.10.0.4");
    assert_eq!(v4(&pool, "d"), "10.10.0.5");
    assert_eq!(v4(&pool, "e"), "10.10.0.6");
    // Wrapped around.
    assert_eq!(v4(&pool, "f"), "10.10.0.2");
}

#[test]
fn an_interface_keeps_its_addresses_and_another_gets_others() {
    let scratch = Scratch::new().unwrap();
    let pool = pool(&scratch);
    let first = pool.allocate(&owner("a")).unwrap();
    assert_eq!(pool.allocate(&owner("a")).unwrap(), first);
    let second = pool.allocate(&Owner::new("a", "net1")).unwrap();
    assert_eq!(second, [ip("10.10.0.3"), ip("fd00:10::3")]);
    assert_eq!(pool.release(&owner("a")).unwrap(), first);
    assert_eq!(pool.holders().unwrap().len(), 2);
    // Releasing without a reservation succeeds.
    assert!(pool.release(&owner("a")).unwrap().is_empty());
    assert!(pool.release(&owner("never seen")).unwrap().is_empty());
}

#[test]
fn reservations_of_another_directory_are_moved_once() {
    let scratch = Scratch::new().unwrap();
    let pool = pool(&scratch);
    assert_eq!(v4(&pool, "ours"), "10.10.0.2");
    let theirs = scratch.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    for (address, owner) in [("10.10.0.2", "stale\r\neth0"), ("10.10.0.3", "c3\r\neth0"), ("10.10.0.4", "")] {
        fs::write(theirs.join(address), owner).unwrap();
    }
    assert_eq!(pool.take_over(&theirs).unwrap(), [ip("10.10.0.3")]);
    assert_eq!(pool.held_by(&owner("c3")).unwrap().len(), 1);
    assert_eq!(pool.held_by(&owner("ours")).unwrap().len(), 2);
    assert_eq!(v4(&pool, "next"), "10.10.0.4", "without an owner, it is free");
    // A released address does not come back.
    pool.release(&owner("c3")).unwrap();
    assert!(pool.take_over(&theirs).unwrap().is_empty());
    assert!(pool.take_over(&scratch.path().join("missing")).unwrap().is_empty());
}

#[test]
fn a_full_subnet_is_an_error_that_leaves_nothing_behind() {
    let scratch = Scratch::new().unwrap();
    let v6_first =
        Pool::open(&directory(&scratch), vec![range("fd00:10::/64", "fd00:10::1"), range("10.10.0.0/30", "10.10.0.1")])
            .unwrap();
    v6_first.allocate(&owner("a")).unwrap();
    let error = v6_first.allocate(&owner("b")).unwrap_err();
    let directory = directory(&scratch);
    let expected =
        format!("all 1 addresses of 10.10.0.0/30 (10.10.0.1 to 10.10.0.2) are taken (in {})", directory.display());
    assert_eq!(error.to_string(), expected);
    let holders: BTreeSet<_> = v6_first.holders().unwrap().into_iter().map(|entry| entry.ip).collect();
    assert_eq!(holders, [ip("10.10.0.2"), ip("fd00:10::2")].into());
    v6_first.release(&owner("a")).unwrap();
    v6_first.allocate(&owner("b")).unwrap();
}

#[test]
fn leaked_addresses_are_collected_and_no_others() {
    let scratch = Scratch::new().unwrap();
    let pool = pool(&scratch);
    for container in ["a", "b", "c"] {
        pool.allocate(&owner(container)).unwrap();
    }
    // A process that died between creating the file and writing it.
    fs::write(directory(&scratch).join("10.10.0.6"), "").unwrap();
    let keep = ["a".to_owned(), "c".to_owned()].into();
    let leaked = pool.leaked(&keep).unwrap();
    // A reservation that changes its owner meanwhile is not released.
    pool.release(&owner("b")).unwrap();
    fs::write(directory(&scratch).join("10.10.0.3"), "d\r\neth0").unwrap();
    let freed: BTreeSet<_> = pool.free(&leaked).unwrap().into_iter().collect();
    assert_eq!(freed, [ip("10.10.0.6")].into());
    let leaked = pool.leaked(&keep).unwrap();
    assert_eq!(pool.free(&leaked).unwrap(), [ip("10.10.0.3")]);
    let holders: BTreeSet<_> = pool.holders().unwrap().into_iter().filter_map(|entry| entry.owner).collect();
    assert_eq!(holders, [owner("a"), owner("c")].into());
    assert!(pool.leaked(&keep).unwrap().is_empty());
}

#[test]
fn files_of_old_versions_and_other_files_are_understood() {
    let scratch = Scratch::new().unwrap();
    let pool = pool(&scratch);
    let directory = directory(&scratch);
    for (name, text) in [
        ("10.10.0.2", "old"),
        ("10.10.0.3", "unix\neth0"),
        ("10.10.0.4", "new\r\neth0"),
        ("10.10.0.5", " \r\n"),
        ("notes.txt", "x"),
        ("last_reserved_ip.0", "not an address"),
    ] {
        fs::write(directory.join(name), text).unwrap();
    }
    let reservation = |ip_text: &str, owner: Option<Owner>| Reservation { ip: ip(ip_text), owner };
    let expected = [
        reservation("10.10.0.2", Some(Owner::new("old", ""))),
        reservation("10.10.0.3", Some(owner("unix"))),
        reservation("10.10.0.4", Some(owner("new"))),
        reservation("10.10.0.5", None),
    ];
    assert_eq!(pool.holders().unwrap(), expected);
    // A file with the container only applies to all of its interfaces.
    assert_eq!(v4(&pool, "old"), "10.10.0.2");
    assert!(pool.release(&owner("old")).unwrap().contains(&ip("10.10.0.2")));
    assert_eq!(v4(&pool, "another"), "10.10.0.2");
    assert!(directory.join("notes.txt").exists());
}

#[test]
fn errors_name_the_file() {
    let scratch = Scratch::new().unwrap();
    let file = scratch.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Pool::open(&file.join("antrea"), vec![]).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("cannot create the directory {}/antrea: Not a directory", file.display())),
        "{error}"
    );

    let pool = pool(&scratch);
    for bad in ["", "a\nb", " a"] {
        assert!(matches!(pool.allocate(&owner(bad)), Err(Error::Owner(_))), "{bad:?}");
    }
}

/// An agent with unreadable files in its directory uses all other addresses, and reports the problem once.
fn goes_on_beside(name: &str, problem: &str, make: impl FnOnce(&Path)) {
    let scratch = Scratch::new().unwrap();
    let (pool, path) = (pool(&scratch), directory(&scratch).join(name));
    make(&path);
    let first = name.parse::<IpAddr>().map_or("10.10.0.2", |_| "10.10.0.3");
    assert_eq!(v4(&pool, "a"), first, "{name}: the address is taken");
    let reported: Vec<(String, String)> =
        pool.news().into_iter().map(|file| (file.path.display().to_string(), file.problem)).collect();
    let expected = (!problem.is_empty()).then(|| (path.display().to_string(), problem.to_owned()));
    assert_eq!(reported, Vec::from_iter(expected));
    assert_eq!(pool.release(&owner("a")).unwrap().len(), 2);
    assert!(pool.leaked(&BTreeSet::new()).unwrap().is_empty(), "foreign files stay");
    assert!(path.symlink_metadata().is_ok());
    assert!(pool.news().is_empty(), "reported only once");
}

#[test]
fn a_file_that_cannot_be_read_takes_its_address_and_fails_no_call() {
    use std::os::unix::ffi::OsStrExt;
    let is_a_directory = "it is not a regular file";
    goes_on_beside("10.10.0.2", is_a_directory, |path| fs::create_dir(path).unwrap());
    goes_on_beside("10.10.0.2", "its content is not UTF-8", |path| fs::write(path, b"\xff\xfe\r\neth0").unwrap());
    goes_on_beside("10.10.0.2", "it is too large for a reservation", |path| fs::write(path, [b'x'; 5000]).unwrap());
    goes_on_beside("10.10.0.2", is_a_directory, |path| {
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    });
    goes_on_beside("10.10.0.2", "No such file or directory (os error 2)", |path| {
        std::os::unix::fs::symlink("/nowhere", path).unwrap();
    });
    goes_on_beside("last_reserved_ip.0", "Is a directory (os error 21)", |path| fs::create_dir(path).unwrap());
    goes_on_beside("notes", "", |path| {
        fs::write(path.with_file_name(std::ffi::OsStr::from_bytes(b"10.10.0.2\xff")), "x").unwrap();
        fs::write(path, "x").unwrap();
    });
}

#[test]
fn a_file_that_may_not_be_read_takes_its_address_and_fails_no_call() {
    // File modes apply to a thread that is not root.
    let other_user = nix::unistd::Uid::from_raw(65534);
    let scratch = Scratch::new().unwrap();
    let (pool, path) = (pool(&scratch), directory(&scratch).join("10.10.0.2"));
    fs::write(&path, "other\r\neth0").unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o0)).unwrap();
    for dir in [scratch.path().to_owned(), scratch.path().join("networks"), directory(&scratch)] {
        nix::unistd::chown(&dir, Some(other_user), None).unwrap();
    }
    let work = || {
        nix::unistd::setfsuid(other_user);
        (v4(&pool, "a"), pool.news(), pool.release(&owner("a")).unwrap().len())
    };
    let (address, reported, released) = std::thread::scope(|scope| scope.spawn(work).join().unwrap());
    assert_eq!((address.as_str(), released), ("10.10.0.3", 2));
    assert_eq!(reported.len(), 1);
    assert_eq!(reported[0].problem, "Permission denied (os error 13)");
}

#[test]
fn concurrent_allocations_never_get_the_same_address() {
    let scratch = Scratch::new().unwrap();
    let ranges = vec![range("10.10.0.0/24", "10.10.0.1"), range("fd00:10::/64", "fd00:10::1")];
    let pool = Pool::open(&directory(&scratch), ranges).unwrap();
    let all: Vec<IpAddr> = std::thread::scope(|scope| {
        let pool = &pool;
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                scope.spawn(move || {
                    let allocate = |n| pool.allocate(&owner(&format!("{thread}-{n}"))).unwrap();
                    (0..20).flat_map(allocate).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 320);
}

/// Runs the CNI project's plugin on the same directory; returns the addresses.
fn host_local(parent: &Path, command: &str, container: &str) -> anyhow::Result<Vec<IpAddr>> {
    let config = format!(
        r#"{{"cniVersion":"1.0.0","name":"antrea","ipam":{{"type":"host-local","dataDir":"{}","ranges":[
            [{{"subnet":"10.10.0.0/29","gateway":"10.10.0.1"}}],[{{"subnet":"fd00:10::/64","gateway":"fd00:10::1"}}]]}}}}"#,
        parent.display()
    );
    let environment = BTreeMap::from([
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", container),
        ("CNI_IFNAME", "eth0"),
        ("CNI_NETNS", "/proc/self/ns/net"),
        ("CNI_PATH", "/usr/lib/cni"),
    ]);
    let said = run(Command::new(HOST_LOCAL).envs(environment), Some(&config))?;
    let ips = said.split('"').filter_map(|part| part.split_once('/')?.0.parse().ok());
    Ok(ips.collect())
}

#[test]
fn host_local_and_the_pool_can_take_over_from_each_other() {
    let scratch = Scratch::new().unwrap();
    let pool = pool(&scratch);
    let parent = directory(&scratch).parent().unwrap().to_owned();
    let theirs = |command: &str, container: &str| host_local(&parent, command, container);

    assert_eq!(pool.allocate(&owner("ours-1")).unwrap(), [ip("10.10.0.2"), ip("fd00:10::2")]);
    // Each continues after the other's last address.
    assert_eq!(theirs("ADD", "theirs-1").unwrap(), [ip("10.10.0.3"), ip("fd00:10::3")]);
    assert_eq!(pool.allocate(&owner("ours-2")).unwrap(), [ip("10.10.0.4"), ip("fd00:10::4")]);
    let held: Vec<_> = pool.holders().unwrap().into_iter().map(|entry| (entry.ip.to_string(), entry.owner)).collect();
    let expected = |ip: &str, container: &str| (ip.to_owned(), Some(owner(container)));
    assert_eq!(
        held[..3],
        [expected("10.10.0.2", "ours-1"), expected("10.10.0.3", "theirs-1"), expected("10.10.0.4", "ours-2")]
    );
    // Each releases and checks reservations of the other.
    theirs("DEL", "ours-1").unwrap();
    assert_eq!(pool.release(&owner("theirs-1")).unwrap(), [ip("10.10.0.3"), ip("fd00:10::3")]);
    theirs("CHECK", "ours-2").unwrap();
    theirs("CHECK", "ours-1").unwrap_err();
    assert_eq!(theirs("ADD", "theirs-2").unwrap()[0], ip("10.10.0.5"));
    assert_eq!(theirs("ADD", "theirs-3").unwrap()[0], ip("10.10.0.6"));
    assert_eq!(v4(&pool, "ours-3"), "10.10.0.2");
    assert_eq!(v4(&pool, "ours-4"), "10.10.0.3");
    // Both find it full.
    assert!(theirs("ADD", "theirs-4").unwrap_err().to_string().contains("no IP addresses available"));
    assert!(matches!(pool.allocate(&owner("ours-5")), Err(Error::Full { .. })));
    // The files are equal, byte for byte.
    let read = |name: &str| fs::read_to_string(directory(&scratch).join(name)).unwrap();
    assert_eq!(read("10.10.0.4"), read("10.10.0.5").replace("theirs-2", "ours-2"));
    assert_eq!(read("last_reserved_ip.0"), "10.10.0.3");
}

#[test]
fn host_local_and_the_pool_wait_for_each_others_lock() {
    let scratch = Scratch::new().unwrap();
    let pool = pool(&scratch);
    let parent = directory(&scratch).parent().unwrap().to_owned();
    // While the lock is held, the other process waits; then it sees the changes.
    let all: Vec<IpAddr> = std::thread::scope(|scope| {
        let theirs: Vec<_> = (0..2)
            .map(|n| {
                let parent = &parent;
                scope.spawn(move || host_local(parent, "ADD", &format!("theirs-{n}")).unwrap())
            })
            .collect();
        let ours: Vec<_> = (0..3).flat_map(|n| pool.allocate(&owner(&format!("ours-{n}"))).unwrap()).collect();
        ours.into_iter().chain(theirs.into_iter().flat_map(|thread| thread.join().unwrap())).collect()
    });
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 10, "{all:?}");
}
