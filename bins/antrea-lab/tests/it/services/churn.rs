//! Endpoints come and go, and agents die, while a Service is used all the time.
//!
//! Shortly in `make test`; `make services-long` sets `CHURN_SECONDS`, `CHURN_RATE` and `LATEST_MS`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::Netns;

use super::world::{World, connect, times};

/// How often a connection that stays is used.
const TICK: Duration = Duration::from_millis(50);

/// New connections, as fast as one client makes them: when each began and ended, and where it got.
type Connections = Vec<(Instant, Instant, Result<u16, String>)>;

/// When an endpoint was removed, each time, and when it came back.
type Away = Vec<(Instant, Option<Instant>)>;

fn connect_all_the_time(from: &Netns, to: SocketAddr, stop: &AtomicBool) -> Connections {
    let mut all = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let got = connect(from, to).map(|(port, _)| port).map_err(|error| error.to_string());
        all.push((began, Instant::now(), got));
    }
    all
}

/// One connection that is used all the time; why it ended before its time, if it did.
fn stay_connected(from: &Netns, to: SocketAddr, stop: &AtomicBool) -> Result<usize, String> {
    let (_, mut stream) = connect(from, to).map_err(|error| error.to_string())?;
    let mut echoes = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut buffer = [0; 4];
        let echo = stream.write_all(b"echo").and_then(|()| stream.read_exact(&mut buffer));
        echo.map_err(|error| format!("after {echoes} echoes: {error}"))?;
        echoes += 1;
        std::thread::park_timeout(TICK);
    }
    Ok(echoes)
}

/// Uses a Service by many connections while something happens to it: new ones, and those that stayed.
fn use_while(world: &World, to: SocketAddr, happens: impl FnOnce()) -> (Connections, Vec<Result<usize, String>>) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let new = scope.spawn(|| connect_all_the_time(&world.client, to, &stop));
        let stay: Vec<_> = (0..10).map(|_| scope.spawn(|| stay_connected(&world.client, to, &stop))).collect();
        happens();
        stop.store(true, Ordering::Relaxed);
        (new.join().unwrap(), stay.into_iter().map(|one| one.join().unwrap()).collect())
    })
}

fn assert_unbroken(new: &Connections, stayed: &[Result<usize, String>]) {
    let failed: Vec<_> = new.iter().filter_map(|(_, _, got)| got.as_ref().err()).collect();
    assert!(failed.is_empty(), "{} of {} new connections failed: {failed:?}", failed.len(), new.len());
    assert!(stayed.iter().all(Result::is_ok), "connections broke: {stayed:?}");
}

#[test]
fn endpoints_that_come_and_go_break_no_connection_and_get_none_once_they_are_gone() {
    let world = World::start("churn", 10);
    let (seconds, rate) = (times("CHURN_SECONDS", 5), times("CHURN_RATE", 40));
    let latest = Duration::from_millis(times("LATEST_MS", 1000).try_into().unwrap());
    let to = world.service("web", "TCP", json!({}), 10);
    let gone: Mutex<BTreeMap<u16, Away>> = Mutex::default();
    let mut changes = 0;
    let (new, stayed) = use_while(&world, to, || {
        let end = Instant::now() + Duration::from_secs(seconds.try_into().unwrap());
        // Half of the endpoints come and go, one change at a time.
        for port in world.servers.ports[5..].iter().cycle() {
            if Instant::now() > end {
                break;
            }
            let next = Instant::now() + Duration::from_secs(2) / u32::try_from(rate).unwrap();
            world.remove("web", *port);
            gone.lock().unwrap().entry(*port).or_default().push((Instant::now(), None));
            std::thread::park_timeout(
                (next - Duration::from_secs(1) / u32::try_from(rate).unwrap())
                    .saturating_duration_since(Instant::now()),
            );
            if let Some(last) = gone.lock().unwrap().get_mut(port).and_then(|all| all.last_mut()) {
                last.1 = Some(Instant::now());
            }
            world.set("web", "TCP", &[*port]);
            changes += 2;
            std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
        }
        // The last ones stay away for longer than anything may take.
        for port in &world.servers.ports[5..] {
            world.remove("web", *port);
            gone.lock().unwrap().entry(*port).or_default().push((Instant::now(), None));
        }
        std::thread::park_timeout(latest * 2);
    });
    assert_unbroken(&new, &stayed);
    let gone = gone.into_inner().unwrap();
    let late = new.iter().filter_map(|(began, _, got)| {
        let away = gone
            .get(got.as_ref().ok()?)?
            .iter()
            .find(|(removed, back)| began > removed && back.is_none_or(|back| *began < back))?;
        Some(*began - away.0)
    });
    let worst = late.max().unwrap_or_default();
    println!(
        "{changes} changes in {seconds} s, {} connections; the last to an endpoint that was gone began {worst:.0?} after",
        new.len()
    );
    assert!(worst <= latest, "a connection got to an endpoint {worst:?} after it was removed");
}

#[test]
fn agents_that_are_killed_break_no_connection_to_a_service_and_hinder_no_new_one() {
    let world = World::start("kills", 10);
    let to = world.service("web", "TCP", json!({}), 10);
    let kills = times("AGENT_KILLS", 4);
    let (new, stayed) = use_while(&world, to, || {
        for kill in 0..kills {
            let node = ["node-1", "node-2"][kill % 2];
            world.kill_agent(node);
            world.until_agent_is_back(node);
        }
    });
    println!("{kills} agents killed, {} connections, of {} others none broke", new.len(), stayed.len());
    assert_unbroken(&new, &stayed);
}
