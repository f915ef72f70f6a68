//! The cluster's DNS server: resolves the names of Services and Pods, and forwards no queries.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use hickory_proto::op::{Message, MessageType, Metadata, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::time::timeout;

use super::zone::{Entry, Zone};
use crate::accept::or_pause;
use crate::client::Mirror;

/// TTL of records in seconds; short, because Services change.
const TTL: u32 = 5;
/// Maximum length of a UDP response to a query without EDNS.
const MAX_PLAIN_UDP: usize = 512;
/// Timeout of a TCP connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves DNS in a Pod whose ServiceAccount can read Services and EndpointSlices.
pub(crate) async fn serve(port: u16) -> Result<()> {
    let config = kube::Config::incluster_env().context("the ServiceAccount of the Pod")?;
    let client = kube::Client::try_from(config)?;
    let (sender, zone) = watch::channel(Arc::new(Zone::default()));
    let at = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let udp = UdpSocket::bind(at).await.with_context(|| format!("cannot listen at UDP port {port}"))?;
    let tcp = TcpListener::bind(at).await.with_context(|| format!("cannot listen at TCP port {port}"))?;
    tokio::try_join!(follow(client, sender), datagrams(udp, zone.clone()), connections(tcp, zone))?;
    Ok(())
}

/// Updates the zone from the API.
async fn follow(client: kube::Client, zone: watch::Sender<Arc<Zone>>) -> Result<()> {
    let services: Api<Service> = Api::all(client.clone());
    let slices: Api<EndpointSlice> = Api::all(client);
    let mut service_events = watcher(services, watcher::Config::default()).default_backoff().boxed();
    let mut slice_events = watcher(slices, watcher::Config::default()).default_backoff().boxed();
    let (mut services, mut slices) = (Mirror::<Service>::default(), Mirror::<EndpointSlice>::default());
    loop {
        tokio::select! {
            event = service_events.try_next() => services.apply(event),
            event = slice_events.try_next() => slices.apply(event),
        }
        if services.synced && slices.synced {
            zone.send_replace(Arc::new(Zone::new(services.objects.values(), slices.objects.values())));
        }
    }
}

async fn datagrams(socket: UdpSocket, zone: watch::Receiver<Arc<Zone>>) -> Result<()> {
    let mut buffer = vec![0; 4096];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
        let zone = zone.borrow().clone();
        if let Some(answer) = reply(&zone, buffer.get(..length).unwrap_or_default(), true) {
            // An unreachable client is not an error.
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

async fn connections(listener: TcpListener, zone: watch::Receiver<Arc<Zone>>) -> Result<()> {
    loop {
        let Ok((stream, _)) = or_pause(listener.accept().await).await else { continue };
        let zone = zone.borrow().clone();
        tokio::spawn(async move { timeout(CONNECTION_TIMEOUT, connection(stream, &zone)).await });
    }
}

async fn connection(mut stream: TcpStream, zone: &Zone) -> std::io::Result<()> {
    loop {
        let mut question = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut question).await?;
        let answer = reply(zone, &question, false).unwrap_or_default();
        let Ok(length) = u16::try_from(answer.len()) else { return Ok(()) };
        stream.write_u16(length).await?;
        stream.write_all(&answer).await?;
    }
}

/// The encoded response to a query; `None` if the message is not a query.
fn reply(zone: &Zone, bytes: &[u8], short: bool) -> Option<Vec<u8>> {
    let question = Message::from_vec(bytes).ok()?;
    if question.metadata.message_type != MessageType::Query {
        return None;
    }
    let mut answer = Message::response(question.metadata.id, question.metadata.op_code);
    answer.metadata = Metadata::response_from_request(&question.metadata);
    answer.metadata.authoritative = true;
    let longest = if question.edns.is_some() { usize::from(question.max_payload()) } else { MAX_PLAIN_UDP };
    match question.queries.first() {
        Some(query) if question.metadata.op_code == OpCode::Query => {
            answer.add_query(query.clone());
            match zone.find(&query.name.to_string()) {
                Some(entry) => answer.answers = records(&query.name, query.query_type, &entry),
                None => answer.metadata.response_code = ResponseCode::NXDomain,
            }
        }
        _ => answer.metadata.response_code = ResponseCode::NotImp,
    }
    let bytes = answer.to_vec().ok()?;
    if short && bytes.len() > longest { answer.truncate().to_vec().ok() } else { Some(bytes) }
}

fn records(name: &Name, kind: RecordType, entry: &Entry) -> Vec<Record> {
    let record = |data| Record::from_rdata(name.clone(), TTL, data);
    let parsed = |text: &str| Name::from_str(&format!("{text}.")).ok();
    if let Some(alias) = entry.alias.as_deref().and_then(parsed) {
        return vec![record(RData::CNAME(CNAME(alias)))];
    }
    let addresses = entry.addresses.iter().filter_map(|address| match (address, kind) {
        (IpAddr::V4(v4), RecordType::A) => Some(RData::A(A(*v4))),
        (IpAddr::V6(v6), RecordType::AAAA) => Some(RData::AAAA(AAAA(*v6))),
        _ => None,
    });
    let services = entry.services.iter().filter(|_| kind == RecordType::SRV);
    let services = services.filter_map(|(port, host)| Some(RData::SRV(SRV::new(0, 100, *port, parsed(host)?))));
    addresses.chain(services).map(record).collect()
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::Query;

    use super::*;

    fn zone() -> Zone {
        let service = serde_json::json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"clusterIP": "10.96.0.7", "ports": [{"name": "http", "port": 80}]},
        });
        let service: Service = serde_json::from_value(service).unwrap();
        Zone::new([&service].into_iter(), [].into_iter())
    }

    fn ask(name: &str, kind: RecordType) -> (ResponseCode, Vec<String>) {
        let mut question = Message::query();
        question.add_query(Query::query(Name::from_str(name).unwrap(), kind));
        let answer = Message::from_vec(&reply(&zone(), &question.to_vec().unwrap(), true).unwrap()).unwrap();
        assert_eq!(answer.metadata.id, question.metadata.id);
        (answer.metadata.response_code, answer.answers.iter().map(|record| record.data.to_string()).collect())
    }

    #[test]
    fn a_question_is_answered_by_kind_and_an_unknown_name_does_not_exist() {
        let found = |answers: &[&str]| (ResponseCode::NoError, answers.iter().map(ToString::to_string).collect());
        assert_eq!(ask("web.shop.svc.cluster.local.", RecordType::A), found(&["10.96.0.7"]));
        assert_eq!(ask("web.shop.svc.cluster.local.", RecordType::AAAA), found(&[]));
        let port = ask("_http._tcp.web.shop.svc.cluster.local.", RecordType::SRV);
        assert_eq!(port, found(&["0 100 80 web.shop.svc.cluster.local."]));
        assert_eq!(ask("example.com.", RecordType::A), (ResponseCode::NXDomain, vec![]));
    }

    #[test]
    fn messages_that_are_not_queries_get_no_response() {
        assert_eq!(reply(&zone(), b"hello", true), None);
        assert_eq!(reply(&zone(), &Message::response(1, OpCode::Query).to_vec().unwrap(), true), None);
    }
}
