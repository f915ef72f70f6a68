use super::*;

const GATEWAY: &str = "antrea-gw0";

fn address(net: &str) -> Address {
    Address { device: GATEWAY.into(), net: net.parse().unwrap() }
}

fn route(destination: &str, via: &str) -> Route {
    Route::onlink(destination.parse().unwrap(), via.parse().unwrap(), GATEWAY)
}

fn neighbour(ip: &str, last: u8) -> Neighbour {
    Neighbour { device: GATEWAY.into(), ip: ip.parse().unwrap(), mac: types::Mac([0xaa, 0, 0, 0, 0, last]) }
}

fn desired() -> Desired {
    Desired {
        links: [(GATEWAY.to_owned(), Link { up: true, mtu: Some(1450), mac: None })].into(),
        addresses: [address("10.10.0.1/24")].into(),
        routes: [route("10.10.1.0/24", "10.10.1.1"), route("10.10.2.0/24", "10.10.2.1")].into(),
        neighbours: [neighbour("10.10.1.1", 1)].into(),
        sysctls: [(format!("net/ipv4/conf/{GATEWAY}/arp_announce"), "1".to_owned())].into(),
        firewall: Some(types::host::Firewall { gateway: GATEWAY.into(), ..Default::default() }),
        ..Desired::default()
    }
}

/// What is seen when all is as desired.
fn settled(desired: &Desired) -> Observed {
    Observed {
        links: desired.links.clone(),
        addresses: desired.addresses.clone(),
        routes: desired.routes.clone(),
        neighbours: desired.neighbours.clone(),
        rules: desired.rules.clone(),
        sysctls: desired.sysctls.clone(),
        firewall_intact: true,
    }
}

#[test]
fn nothing_is_done_where_nothing_differs() {
    let desired = desired();
    assert_eq!(diff(&desired, &settled(&desired), true), []);
}

#[test]
fn what_is_needed_comes_before_what_needs_it() {
    let desired = desired();
    let link = Link { up: false, mtu: Some(1500), mac: Some(types::Mac([2; 6])) };
    let observed = Observed { links: [(GATEWAY.to_owned(), link)].into(), ..Observed::default() };
    let expected = [
        Op::SetSysctl("net/ipv4/conf/antrea-gw0/arp_announce".into(), "1".into()),
        Op::SetLink(GATEWAY.into(), Link { up: true, mtu: Some(1450), mac: None }),
        Op::AddAddress(address("10.10.0.1/24")),
        Op::PutNeighbour(neighbour("10.10.1.1", 1)),
        Op::PutRoute(route("10.10.1.0/24", "10.10.1.1")),
        Op::PutRoute(route("10.10.2.0/24", "10.10.2.1")),
        Op::ReplaceFirewall(desired.firewall.clone().unwrap()),
    ];
    assert_eq!(diff(&desired, &observed, false), expected);
}

#[test]
fn only_what_differs_of_a_device_is_set() {
    let mut desired = desired();
    desired.links.get_mut(GATEWAY).unwrap().mac = Some(types::Mac([2; 6]));
    let mut observed = settled(&desired);
    observed.links.get_mut(GATEWAY).unwrap().mtu = Some(9000);
    let change = Link { up: true, mtu: Some(1450), mac: None };
    assert_eq!(diff(&desired, &observed, false), [Op::SetLink(GATEWAY.into(), change)]);
}

#[test]
fn of_a_device_that_is_missing_nothing_is_asked_but_to_be_there() {
    let desired = desired();
    let observed = Observed { firewall_intact: true, ..Observed::default() };
    let link = desired.links.get(GATEWAY).unwrap().clone();
    assert_eq!(diff(&desired, &observed, true), [Op::SetLink(GATEWAY.into(), link)]);
}

#[test]
fn a_route_to_the_same_place_is_replaced_and_not_removed() {
    let desired = desired();
    let mut observed = settled(&desired);
    observed.routes = [route("10.10.1.0/24", "10.10.1.99"), route("10.10.2.0/24", "10.10.2.1")].into();
    observed.neighbours = [neighbour("10.10.1.1", 99)].into();
    let expected = [Op::PutNeighbour(neighbour("10.10.1.1", 1)), Op::PutRoute(route("10.10.1.0/24", "10.10.1.1"))];
    assert_eq!(diff(&desired, &observed, true), expected);
}

#[test]
fn destinations_are_compared_as_the_kernel_writes_them() {
    let mut desired = desired();
    let observed = settled(&desired);
    desired.routes = [route("10.10.1.7/24", "10.10.1.1"), route("10.10.2.0/24", "10.10.2.1")].into();
    assert_eq!(diff(&desired, &observed, true), []);
}

#[test]
fn what_nobody_wants_stays_until_the_sweep_is_allowed() {
    let desired = desired();
    let mut observed = settled(&desired);
    let rule = types::host::RoutingRule {
        priority: 300,
        ipv6: false,
        device: GATEWAY.into(),
        mark: 0x800,
        mask: 0x800,
        table: 300,
    };
    observed.routes.insert(route("10.10.9.0/24", "10.10.9.1"));
    observed.neighbours.insert(neighbour("10.10.9.1", 9));
    observed.rules.insert(rule.clone());
    assert_eq!(diff(&desired, &observed, false), []);
    let expected = [
        Op::RemoveRule(rule),
        Op::RemoveRoute(route("10.10.9.0/24", "10.10.9.1")),
        Op::RemoveNeighbour(neighbour("10.10.9.1", 9)),
    ];
    assert_eq!(diff(&desired, &observed, true), expected);
}

#[test]
fn what_the_kernel_drops_with_an_address_is_put_back() {
    let desired = desired();
    let mut observed = settled(&desired);
    observed.addresses.insert(address("10.10.0.9/24"));
    let expected = [
        Op::RemoveAddress(address("10.10.0.9/24")),
        Op::AddAddress(address("10.10.0.1/24")),
        Op::PutNeighbour(neighbour("10.10.1.1", 1)),
        Op::PutRoute(route("10.10.1.0/24", "10.10.1.1")),
        Op::PutRoute(route("10.10.2.0/24", "10.10.2.1")),
    ];
    assert_eq!(diff(&desired, &observed, true), expected);
}

#[test]
fn rules_that_nobody_knows_yet_stay_as_they_are() {
    let mut desired = desired();
    desired.firewall = None;
    let observed = Observed { firewall_intact: false, ..settled(&desired) };
    assert_eq!(diff(&desired, &observed, true), []);
}
