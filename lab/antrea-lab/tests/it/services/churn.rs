//! Endpoints change and agents are killed while a Service has permanent traffic.
//!
//! Shortly in `make test`; `make services-long` sets `CHURN_SECONDS`, `CHURN_RATE` and `LATEST_MS`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::Netns;
use testkit::wait::{rest, until};

use super::world::{World, answered_by, connect, times, udp_socket};
use crate::endurance::Stops;
use crate::lab::TIMEOUT;

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
        rest(TICK);
    }
    Ok(echoes)
}

/// Datagrams of one socket to an endpoint; why they did not all get there, if one did not.
fn keep_asking(socket: &UdpSocket, endpoint: u16, stop: &AtomicBool) -> Result<usize, String> {
    let mut answers = 0;
    while !stop.load(Ordering::Relaxed) {
        let by = answered_by(socket);
        if by != endpoint {
            return Err(format!("after {answers} answers of {endpoint}: one of {by}"));
        }
        answers += 1;
        rest(TICK);
    }
    Ok(answers)
}

/// Results of the clients of a Service during a disruption.
struct Used {
    new: Connections,
    /// Result of each long-lived connection.
    stayed: Vec<Result<usize, String>>,
}

/// Uses a Service by many connections while something happens to it, and by datagrams to an endpoint of another.
fn use_while(world: &World, to: SocketAddr, datagrams: Option<(&UdpSocket, u16)>, happens: impl FnOnce()) -> Used {
    let stop = AtomicBool::new(false);
    let stop = &stop;
    std::thread::scope(|scope| {
        let stops = Stops(stop);
        let new = scope.spawn(|| connect_all_the_time(&world.client, to, stop));
        let mut stay: Vec<_> = (0..10).map(|_| scope.spawn(|| stay_connected(&world.client, to, stop))).collect();
        stay.extend(datagrams.map(|(socket, endpoint)| scope.spawn(move || keep_asking(socket, endpoint, stop))));
        happens();
        drop(stops);
        Used { new: new.join().unwrap(), stayed: stay.into_iter().map(|one| one.join().unwrap()).collect() }
    })
}

impl Used {
    fn assert_unbroken(&self) {
        let Self { new, stayed } = self;
        let failed: Vec<_> = new.iter().filter_map(|(_, _, got)| got.as_ref().err()).collect();
        assert!(failed.is_empty(), "{} of {} new connections failed: {failed:?}", failed.len(), new.len());
        assert!(stayed.iter().all(Result::is_ok), "connections broke: {stayed:?}");
    }
}

/// Endpoints that leave Service `web` and come back.
struct Churn<'a> {
    world: &'a World,
    away: BTreeMap<u16, Away>,
    changes: usize,
}

impl Churn<'_> {
    fn leave(&mut self, port: u16) {
        self.world.remove("web", port);
        self.away.entry(port).or_default().push((Instant::now(), None));
        self.changes += 1;
    }

    fn come_back(&mut self, port: u16) {
        if let Some(last) = self.away.get_mut(&port).and_then(|all| all.last_mut()) {
            last.1 = Some(Instant::now());
        }
        self.world.set("web", "TCP", &[port]);
        self.changes += 1;
    }

    /// How long after an endpoint was removed the last connection began that got there, at most. One that had not ended when the endpoint
    /// came back may have got there by then.
    fn latest(&self, new: &Connections) -> Duration {
        let late = new.iter().filter_map(|(began, ended, got)| {
            let mut away = self.away.get(got.as_ref().ok()?)?.iter();
            let away = away.find(|(removed, back)| began > removed && back.is_none_or(|back| *ended < back))?;
            Some(*began - away.0)
        });
        late.max().unwrap_or_default()
    }
}

#[test]
fn changing_endpoints_break_no_connection_and_removed_ones_get_none() {
    let world = World::start("churn", 10);
    let (seconds, rate) = (times("CHURN_SECONDS", 5), u32::try_from(times("CHURN_RATE", 40)).unwrap());
    let limit = Duration::from_millis(times("LATEST_MS", 1000).try_into().unwrap());
    let to = world.service("web", "TCP", json!({}), 10);
    let dns = world.service("dns", "UDP", json!({}), 10);
    let (stay, come_and_go) = world.servers.ports.split_at(5);
    let to_one_that_stays = || {
        let socket = udp_socket(&world.client, dns);
        let endpoint = answered_by(&socket);
        stay.contains(&endpoint).then_some((socket, endpoint))
    };
    let (socket, endpoint) = until("an endpoint that stays", TIMEOUT, to_one_that_stays).unwrap();
    let mut churn = Churn { world: &world, away: BTreeMap::new(), changes: 0 };
    let began = Instant::now();
    let mut took = Duration::ZERO;
    let used = use_while(&world, to, Some((&socket, endpoint)), || {
        let end = began + Duration::from_secs(seconds.try_into().unwrap());
        let pause_until = |moment: Instant| {
            rest(moment.saturating_duration_since(Instant::now()));
        };
        // One is away for so long that a connection that gets there is late, each in turn. The others come and go meanwhile,
        // one change at a time. Those of the Service of UDP are fewer, as they are not to slow down the others.
        for absent in come_and_go.iter().cycle().take_while(|_| Instant::now() < end) {
            churn.leave(*absent);
            world.remove("dns", *absent);
            let back = Instant::now() + limit * 3;
            let others = come_and_go.iter().filter(|port| *port != absent);
            for port in others.cycle().take_while(|_| Instant::now() < back) {
                let began = Instant::now();
                churn.leave(*port);
                pause_until(began + Duration::from_secs(1) / rate);
                churn.come_back(*port);
                pause_until(began + Duration::from_secs(2) / rate);
            }
            churn.come_back(*absent);
            world.set("dns", "UDP", &[*absent]);
        }
        come_and_go.iter().for_each(|port| churn.leave(*port));
        took = began.elapsed();
        pause_until(Instant::now() + limit * 2);
    });
    used.assert_unbroken();
    let (worst, changes, connections) = (churn.latest(&used.new), churn.changes, used.new.len());
    println!(
        "{changes} changes in {took:.1?}, {connections} connections; the last to an endpoint that was gone began {worst:.0?} after"
    );
    assert!(worst <= limit, "a connection got to an endpoint {worst:?} after it was removed");
}

#[test]
fn killed_agents_break_no_service_connection_and_delay_no_new_one() {
    let world = World::start("kills", 10);
    let to = world.service("web", "TCP", json!({}), 10);
    let kills = times("AGENT_KILLS", 4);
    let used = use_while(&world, to, None, || {
        for kill in 0..kills {
            let node = ["node-1", "node-2"][kill % 2];
            world.kill_agent(node);
            world.until_agent_is_back(node);
        }
    });
    used.assert_unbroken();
    println!("{kills} agents killed, {} connections, of {} others none broke", used.new.len(), used.stayed.len());
}
