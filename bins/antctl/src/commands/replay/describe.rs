//! Events, requests and state in one line each.

use node::database::{Assigned, PodPort};
use node::{Change, CniEvent, ControllerEvent, Effect, Event, PortEvent, SwitchEvent};
use types::control::Batch;
use types::host::Route;

pub(super) fn event(event: &Event) -> String {
    match event {
        Event::Node(Change::Set(node)) => format!("Node {} set", node.metadata.name),
        Event::Node(Change::Gone(name)) => format!("Node {name} deleted"),
        Event::Service(Change::Set(service)) => format!("Service {} set", service.metadata.object_name()),
        Event::Service(Change::Gone(name)) => format!("Service {name} deleted"),
        Event::EndpointSlice(Change::Set(slice)) => {
            let name = slice.metadata.object_name();
            format!("EndpointSlice {name} set, {} endpoints", slice.endpoints.len())
        }
        Event::EndpointSlice(Change::Gone(name)) => format!("EndpointSlice {name} deleted"),
        Event::Synced(source) => format!("initial sync of {source:?}"),
        Event::Controller(event) => controller(event),
        Event::Switch(event) => switch(event),
        Event::Port(PortEvent::Set(row)) => match &row.assigned {
            Assigned::Port(port) => format!("OVSDB port {} has OpenFlow port {port}", row.name),
            Assigned::Pending => format!("OVSDB port {} has no OpenFlow port yet", row.name),
            Assigned::Failed(reason) => format!("OVSDB port {} failed: {reason}", row.name),
        },
        Event::Port(PortEvent::Gone(name)) => format!("OVSDB port {name} removed"),
        Event::Port(PortEvent::Failed { name, problem }) => format!("OVSDB port {name} cannot be written: {problem}"),
        Event::Cni(event) => cni(event),
        Event::Resume(_) => "checkpoint".to_owned(),
        Event::Tick => "time".to_owned(),
    }
}

fn controller(event: &ControllerEvent) -> String {
    match event {
        ControllerEvent::Discovered(found) => {
            let is = if found.is_deployed { "is" } else { "is not" };
            format!("antrea-controller {is} deployed, {} replicas ready", found.addresses.len())
        }
        ControllerEvent::Connected { attempt } => format!("antrea-controller connected (attempt {attempt})"),
        ControllerEvent::Disconnected { attempt, reason } => {
            format!("antrea-controller disconnected (attempt {attempt}): {reason}")
        }
        ControllerEvent::Batch { batch, .. } => format!("antrea-controller sent {}", policies(batch)),
        ControllerEvent::Restored(None) => "no policy snapshot on disk".to_owned(),
        ControllerEvent::Restored(Some(batch)) => format!("policies from disk: {}", policies(batch)),
        ControllerEvent::ReadPolicies { pod, outcome: Ok((_, policies)) } => {
            format!("Pod {pod} read, with {} policies of its namespace", policies.len())
        }
        ControllerEvent::ReadPolicies { pod, outcome: Err(reason) } => format!("Pod {pod} not read: {reason}"),
    }
}

fn policies(batch: &Batch) -> String {
    let kind = if batch.snapshot { "a snapshot" } else { "changes" };
    format!("{kind} of {} objects", batch.changes.len())
}

fn switch(event: &SwitchEvent) -> String {
    match event {
        SwitchEvent::Up(epoch) => format!("switch connected ({epoch})"),
        SwitchEvent::Down => "switch disconnected".to_owned(),
        SwitchEvent::Groups(groups) => format!("switch has {} groups", groups.len()),
        SwitchEvent::Flows(flows) => format!("switch has {} flows", flows.len()),
        SwitchEvent::Listed(Ok(())) => "switch listed completely".to_owned(),
        SwitchEvent::Listed(Err(problem)) => format!("switch not listed: {problem}"),
        SwitchEvent::Committed(Ok(())) => "bundle committed".to_owned(),
        SwitchEvent::Committed(Err(error)) => format!("bundle not committed: {error}"),
    }
}

fn cni(event: &CniEvent) -> String {
    let outcome = |outcome: &Result<(), String>| outcome.as_ref().err().map_or("ok".to_owned(), Clone::clone);
    match event {
        CniEvent::Open => "CNI calls are accepted".to_owned(),
        CniEvent::Add { call, request } => format!("CNI {} ADD of Pod {}, {}", call.0, request.pod, request.id),
        CniEvent::Delete { call, id, .. } => format!("CNI {} DEL of {id}", call.0),
        CniEvent::Collect(names) => format!("ports are not in use: {}", names.join(", ")),
        CniEvent::Allocated { call, outcome: Ok(addresses) } => format!("CNI {} allocated {addresses:?}", call.0),
        CniEvent::Allocated { call, outcome: Err(error) } => format!("CNI {} not allocated: {error}", call.0),
        CniEvent::Checked { call, is_same } => format!("CNI {} checked the veth: same is {is_same}", call.0),
        CniEvent::VethCreated { call } => format!("CNI {} created the host end of the veth", call.0),
        CniEvent::VethAttached { call, outcome: of } => format!("CNI {} attached the veth: {}", call.0, outcome(of)),
        CniEvent::AddressesPrepared { call, outcome: of } => {
            format!("CNI {} flushed connections of the addresses: {}", call.0, outcome(of))
        }
        CniEvent::VethDeleted { name, outcome: of } => format!("veth {name} deleted: {}", outcome(of)),
        CniEvent::Released { id, outcome: Ok(()) } => format!("addresses of {id} released"),
        CniEvent::Released { id, outcome: Err(error) } => format!("addresses of {id} not released: {error}"),
    }
}

pub(super) fn effect(effect: &Effect) -> String {
    match effect {
        Effect::List => "list the switch".to_owned(),
        Effect::Commit => "commit a bundle".to_owned(),
        Effect::Connect { attempt, address } => {
            format!("connect to antrea-controller at {address} (attempt {attempt})")
        }
        Effect::Disconnect(reason) => format!("disconnect from antrea-controller: {reason}"),
        Effect::RestoreSnapshot => "read the policy snapshot on disk".to_owned(),
        Effect::SaveSnapshot => "write the policy snapshot to disk".to_owned(),
        Effect::Report(reports) => format!("report the status of {} policies", reports.len()),
        Effect::ReadPolicies { pod, .. } => format!("read Pod {pod} and the policies of its namespace"),
        Effect::Allocate { call, id } => format!("CNI {}: allocate addresses for {id}", call.0),
        Effect::CheckVeth { call, link } => format!("CNI {}: check veth {}", call.0, link.host_device),
        Effect::CreateVeth { call, link } => format!("CNI {}: create veth {}", call.0, link.host_device),
        Effect::PrepareAddresses { call, addresses } => format!("CNI {}: flush connections of {addresses:?}", call.0),
        Effect::Announce(link) => format!("announce {:?}", link.addresses),
        Effect::DeleteVeth(name) => format!("delete veth {name}"),
        Effect::Release { id, .. } => format!("release the addresses of {id}"),
        Effect::Reply { call, outcome: Ok(_) } => format!("CNI {}: reply success", call.0),
        Effect::Reply { call, outcome: Err(error) } => format!("CNI {}: reply with error: {error}", call.0),
        Effect::Log(notice) => format!("log: {notice}"),
    }
}

pub(super) fn route(route: &Route) -> String {
    let via = route.via.map(|via| format!(" via {via}")).unwrap_or_default();
    format!("{}{via} dev {}", route.destination, route.device)
}

pub(super) fn port(port: &PodPort, number: Option<u16>) -> String {
    let number = number.map(|number| format!(" ofport_request={number}")).unwrap_or_default();
    format!("{} Pod {} {:?}{number}", port.name, port.pod, port.addresses)
}
