//! ovs-vswitchd dies again and again, under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use openflow::field::Field;
use openflow::flow::{Flow, FlowMod, FlowRequest};
use openflow::matching::Match;
use openflow::message::Message;
use openflow::multipart::MultipartRequest;
use openflow::port::Port;
use ovs::switch::{Event, Status, Switch};

use crate::switch::connected;

/// How many times it dies; the long run asks for more.
fn deaths() -> u64 {
    std::env::var("RESTARTS").ok().and_then(|n| n.parse().ok()).unwrap_or(8)
}

#[derive(Default)]
struct Load {
    stop: AtomicBool,
    answered: AtomicU64,
    failed: AtomicU64,
}

/// One user of the switch: whatever it asks for ends in an answer or in an error that is worth another try.
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
                // Whoever is told that there is no connection waits for one.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_death_of_the_switch_is_survived_and_no_request_is_lost() {
    const USERS: u32 = 8;
    let (ovs, switch, mut events) = connected(|config| {
        config.probe_interval = Duration::from_secs(2);
        config.timeout = Duration::from_secs(10);
    })
    .await;
    let load = Arc::new(Load::default());
    let idle = tasks();
    let users: Vec<_> = (0..USERS).map(|n| tokio::spawn(user(switch.clone(), Arc::clone(&load), n))).collect();
    let mut status = switch.status();
    for death in 1..=deaths() {
        // Dies at another moment each time, but always with requests under way.
        let before = load.answered.load(Ordering::Relaxed);
        while load.answered.load(Ordering::Relaxed) < before + 20 + death % 7 {
            tokio::task::yield_now().await;
        }
        tokio::task::block_in_place(|| {
            ovs.kill_vswitchd().unwrap();
            ovs.start_vswitchd().unwrap();
        });
        status.wait_for(|s| matches!(s, Status::Up { epoch, .. } if *epoch > death)).await.unwrap();
    }
    load.stop.store(true, Ordering::Relaxed);
    for user in users {
        user.await.unwrap();
    }
    let (answered, failed) = (load.answered.load(Ordering::Relaxed), load.failed.load(Ordering::Relaxed));
    println!("{} deaths: {answered} requests answered, {failed} failed with an error", deaths());
    assert!(failed > 0, "no request was under way when the switch died");
    // Every connection was announced, once, in order, each after the end of the one before.
    let mut seen = Vec::new();
    while seen.len() < usize::try_from(2 * deaths() + 1).unwrap() {
        match events.next().await.unwrap() {
            Event::Up { epoch, .. } => seen.push(epoch),
            Event::Down { .. } => seen.push(0),
            Event::Message(_) => {}
            Event::Missed => panic!("events were missed"),
        }
    }
    let expected: Vec<u64> = (1..=deaths() + 1).flat_map(|epoch| [epoch, 0]).take(seen.len()).collect();
    assert_eq!(seen, expected);
    assert_eq!(tasks(), idle, "tasks are left over");
    drop((switch, status));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_their_own_are_closed_when_done() {
    let (_ovs, switch, _events) = connected(|_| {}).await;
    let work = async || {
        switch.commit([FlowMod::add(Flow::at(0, 0))]).await.unwrap();
        dump(&switch).await.unwrap();
    };
    work().await;
    let before = open_files();
    for _ in 0..50 {
        work().await;
    }
    // Other tests of this process open files as well; fifty leaked pairs would stand out.
    assert!(open_files() < before + 50, "{before} open files before, {} after", open_files());
}
