//! Addresses of Pods, beside the CNI project's own `host-local`.

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

/// Addresses 10.10.0.2 to 10.10.0.6, and as many as one likes of IPv6.
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
fn addresses_are_given_in_turn_and_rest_after_use() {
    let scratch = Scratch::new().unwrap();
    let pool = pool(&scratch);
    assert_eq!(pool.allocate(&owner("a")).unwrap(), [ip("10.10.0.2"), ip("fd00:10::2")]);
    assert_eq!(v4(&pool, "b"), "10.10.0.3");
    assert_eq!(pool.release(&owner("a")).unwrap(), [ip("10.10.0.2"), ip("fd00:10::2")]);
    assert_eq!(v4(&pool, "c"), "10.10.0.4");
    assert_eq!(v4(&pool, "d"), "10.10.0.5");
    assert_eq!(v4(&pool, "e"), "10.10.0.6");
    // Round again.
    assert_eq!(v4(&pool, "f"), "10.10.0.2");
}

#[test]
fn the_same_interface_gets_the_same_addresses_and_another_one_others() {
    let scratch = Scratch::new().unwrap();
    let pool = pool(&scratch);
    let first = pool.allocate(&owner("a")).unwrap();
    assert_eq!(pool.allocate(&owner("a")).unwrap(), first);
    let second = pool.allocate(&Owner::new("a", "net1")).unwrap();
    assert_eq!(second, [ip("10.10.0.3"), ip("fd00:10::3")]);
    assert_eq!(pool.release(&owner("a")).unwrap(), first);
    assert_eq!(pool.holders().unwrap().len(), 2);
    // What nobody holds is given back easily, by whomever.
    assert!(pool.release(&owner("a")).unwrap().is_empty());
    assert!(pool.release(&owner("never seen")).unwrap().is_empty());
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
    // A process that died between making the file and writing it.
    fs::write(directory(&scratch).join("10.10.0.6"), "").unwrap();
    let keep = ["a".to_owned(), "c".to_owned()].into();
    let collected: BTreeSet<_> = pool.collect(&keep).unwrap().into_iter().collect();
    assert_eq!(collected, [ip("10.10.0.3"), ip("fd00:10::3"), ip("10.10.0.6")].into());
    let holders: BTreeSet<_> = pool.holders().unwrap().into_iter().filter_map(|entry| entry.owner).collect();
    assert_eq!(holders, [owner("a"), owner("c")].into());
    assert!(pool.collect(&keep).unwrap().is_empty());
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
    // The container alone stands for all of its interfaces.
    assert_eq!(v4(&pool, "old"), "10.10.0.2");
    assert!(pool.release(&owner("old")).unwrap().contains(&ip("10.10.0.2")));
    assert_eq!(v4(&pool, "another"), "10.10.0.2");
    assert!(directory.join("notes.txt").exists());
}

#[test]
fn what_cannot_be_read_or_written_is_named() {
    let scratch = Scratch::new().unwrap();
    let file = scratch.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Pool::open(&file.join("antrea"), vec![]).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("cannot make the directory {}/antrea: Not a directory", file.display())),
        "{error}"
    );

    let pool = pool(&scratch);
    let directory = directory(&scratch);
    // Root reads whatever its mode; a directory in the place of a file nobody reads.
    fs::create_dir(directory.join("10.10.0.3")).unwrap();
    let error = pool.allocate(&owner("a")).unwrap_err().to_string();
    assert_eq!(error, format!("cannot read {}/10.10.0.3: Is a directory (os error 21)", directory.display()));
    fs::remove_dir(directory.join("10.10.0.3")).unwrap();

    for bad in ["", "a\nb", " a"] {
        assert!(matches!(pool.allocate(&owner(bad)), Err(Error::Owner(_))), "{bad:?}");
    }
}

#[test]
fn many_at_once_never_get_the_same() {
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

/// Runs the CNI project's plugin on the same directory; gives the addresses.
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
fn host_local_and_we_can_take_over_from_each_other() {
    let scratch = Scratch::new().unwrap();
    let pool = pool(&scratch);
    let parent = directory(&scratch).parent().unwrap().to_owned();
    let theirs = |command: &str, container: &str| host_local(&parent, command, container);

    assert_eq!(pool.allocate(&owner("ours-1")).unwrap(), [ip("10.10.0.2"), ip("fd00:10::2")]);
    // It goes on where we were, and we where it was.
    assert_eq!(theirs("ADD", "theirs-1").unwrap(), [ip("10.10.0.3"), ip("fd00:10::3")]);
    assert_eq!(pool.allocate(&owner("ours-2")).unwrap(), [ip("10.10.0.4"), ip("fd00:10::4")]);
    let held: Vec<_> = pool.holders().unwrap().into_iter().map(|entry| (entry.ip.to_string(), entry.owner)).collect();
    let expected = |ip: &str, container: &str| (ip.to_owned(), Some(owner(container)));
    assert_eq!(
        held[..3],
        [expected("10.10.0.2", "ours-1"), expected("10.10.0.3", "theirs-1"), expected("10.10.0.4", "ours-2")]
    );
    // Either removes and checks what the other has written.
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
    // Files are the same, byte for byte.
    let read = |name: &str| fs::read_to_string(directory(&scratch).join(name)).unwrap();
    assert_eq!(read("10.10.0.4"), read("10.10.0.5").replace("theirs-2", "ours-2"));
    assert_eq!(read("last_reserved_ip.0"), "10.10.0.3");
}

#[test]
fn host_local_and_we_wait_for_each_other() {
    let scratch = Scratch::new().unwrap();
    let pool = pool(&scratch);
    let parent = directory(&scratch).parent().unwrap().to_owned();
    // While the lock is held, the other process waits: when it gets its turn, it sees what was done.
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
