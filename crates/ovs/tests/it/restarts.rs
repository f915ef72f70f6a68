//! Crashes of ovs-vswitchd under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use openflow::field::Field;
use openflow::flow::{Flow, FlowMod, FlowRequest};
use openflow::matching::Match;
use openflow::message::Message;
use openflow::multipart::MultipartRequest;
use openflow::port::Port;
use ovs::switch::{Event, Events, Status, Switch};

use testkit::wait::{TIMEOUT, until};

use crate::switch::connected;

/// How often ovs-vswitchd is killed.
const CRASHES: u64 = 50;
/// After this many crashes the buffers have their final size.
const WARM: u64 = 10;

#[derive(Default)]
struct Load {
    stop: AtomicBool,
    answered: AtomicU64,
    failed: AtomicU64,
}

/// A client that repeats requests: each ends in a reply or in a transient error.
async fn user(switch: Switch, load: Arc<Load>, number: u32) {
    let mut round = 0;
    while !load.stop.load(Ordering::Relaxed) {
        round += 1;
        let flows = (0..50u32).map(|n| {
            let matches = Match::any().with(Field::Reg0, n).with(Field::Reg1, number);
            FlowMod::add(Flow::at(1, 1).when(matches).cookie(round))
        });
        let transient = match round % 4 {
            0 => switch
                .request(Message::EchoRequest(vec![1; 100]))
                .await
                .map(drop)
                .map_err(|e| (e.is_transient(), e.to_string())),
            1 => switch.commit(flows).await.map_err(|e| (e.is_transient(), e.to_string())),
            2 => switch
                .multipart(MultipartRequest::PortDesc(Port::ANY))
                .await
                .map(drop)
                .map_err(|e| (e.is_transient(), e.to_string())),
            _ => dump(&switch).await.map_err(|e| (e.is_transient(), e.to_string())),
        };
        match transient {
            Ok(()) => {
                load.answered.fetch_add(1, Ordering::Relaxed);
            }
            Err((transient, error)) => {
                assert!(transient, "{error}");
                load.failed.fetch_add(1, Ordering::Relaxed);
                switch.up().await.unwrap();
            }
        }
    }
}

async fn dump(switch: &Switch) -> Result<(), ovs::switch::RequestError> {
    let mut dump = switch.dump_flows(FlowRequest::default()).await?;
    while dump.next().await?.is_some() {}
    Ok(())
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Memory of this process, in bytes.
fn memory() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// In a process of its own: leaks show only in one that runs no other test.
#[test]
fn crashes_of_the_switch_lose_no_request_and_leak_nothing() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "restarts::fifty_crashes", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    println!("{}", text.lines().find(|line| line.contains("crashes")).unwrap_or_default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the test above runs it, in a process of its own"]
async fn fifty_crashes() {
    const USERS: u32 = 8;
    let (ovs, switch, mut events) = connected(|config| {
        config.probe_interval = Duration::from_secs(2);
        config.timeout = Duration::from_secs(10);
    })
    .await;
    let load = Arc::new(Load::default());
    let (idle_tasks, idle_files) = (tasks(), open_files());
    let mut warm_memory = 0;
    let users: Vec<_> = (0..USERS).map(|n| tokio::spawn(user(switch.clone(), Arc::clone(&load), n))).collect();
    let mut status = switch.status();
    for crash in 1..=CRASHES {
        // At another moment each time, but always with requests in flight.
        let before = load.answered.load(Ordering::Relaxed);
        while load.answered.load(Ordering::Relaxed) < before + 20 + crash % 7 {
            tokio::task::yield_now().await;
        }
        tokio::task::block_in_place(|| {
            ovs.kill_vswitchd().unwrap();
            ovs.start_vswitchd().unwrap();
        });
        status.wait_for(|s| matches!(s, Status::Up { epoch, .. } if *epoch > crash)).await.unwrap();
        if crash == WARM {
            warm_memory = memory();
        }
    }
    load.stop.store(true, Ordering::Relaxed);
    for user in users {
        user.await.unwrap();
    }
    let (answered, failed) = (load.answered.load(Ordering::Relaxed), load.failed.load(Ordering::Relaxed));
    let grown = memory().saturating_sub(warm_memory) / 1024;
    println!("{CRASHES} crashes: {answered} requests succeeded, {failed} failed, memory grew by {grown} kB");
    assert!(failed > 0, "no request was in flight when the switch crashed");
    assert!(grown < 4096, "memory grew by {grown} kB in {} crashes", CRASHES - WARM);
    assert_announced(&mut events).await;
    tokio::task::block_in_place(|| {
        let all_ended = || (tasks() == idle_tasks && open_files() <= idle_files).then_some(());
        until("the users' tasks and connections to be gone", TIMEOUT, all_ended).unwrap();
    });
}

/// Every connection was announced, once, in order, each after the end of the one before.
async fn assert_announced(events: &mut Events) {
    let mut epochs = Vec::new();
    while epochs.len() < usize::try_from(2 * CRASHES + 1).unwrap() {
        match events.next().await.unwrap() {
            Event::Up { epoch, .. } => epochs.push(epoch),
            Event::Down { .. } => epochs.push(0),
            Event::Message(_) => {}
            Event::Missed => panic!("events were missed"),
        }
    }
    let expected: Vec<u64> = (1..=CRASHES + 1).flat_map(|epoch| [epoch, 0]).take(epochs.len()).collect();
    assert_eq!(epochs, expected);
}
