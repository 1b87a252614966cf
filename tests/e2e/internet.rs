//! A small internet of network namespaces: routed networks, homes behind routers that translate (nftables), and an office
//! whose router drops UDP.

use std::fmt;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Where a node stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// On the internet, in a network of its own.
    Internet(u8),
    /// In this home, under this host number.
    Home(u8, u8),
    /// In the office, under this host number.
    Office(u8),
}

impl Place {
    /// The host of the second home whose every connection leaves by another port.
    pub(crate) const UNPUNCHED: u8 = 9;
    const SECOND_HOME: u8 = 2;

    fn namespace(self) -> String {
        match self {
            Self::Internet(number) => format!("n{number}"),
            Self::Home(home, host) => format!("h{home}-{host}"),
            Self::Office(host) => format!("o-{host}"),
        }
    }

    /// Its address, and the router's on the same network. 198.18.0.0/15 is set aside for tests (RFC 2544).
    const fn addresses(self) -> (Ipv4Addr, Ipv4Addr) {
        match self {
            Self::Internet(number) => (
                Ipv4Addr::new(198, 18, number, 2),
                Ipv4Addr::new(198, 18, number, 1),
            ),
            Self::Home(home, host) => (
                Ipv4Addr::new(192, 168, home, host),
                Ipv4Addr::new(192, 168, home, 1),
            ),
            Self::Office(host) => (Ipv4Addr::new(198, 19, 1, host), Ipv4Addr::new(198, 19, 1, 1)),
        }
    }

    /// Its address.
    pub(crate) const fn address(self) -> Ipv4Addr {
        self.addresses().0
    }

    /// The router before it, with the network between that and the internet.
    fn router(self) -> Option<(String, u8)> {
        match self {
            Self::Internet(_) => None,
            Self::Home(home, _) => Some((format!("r{home}"), 100 + home)),
            Self::Office(_) => Some(("ro".into(), 100)),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internet(_) => f.write_str("internet"),
            Self::Home(home, Self::UNPUNCHED) => write!(f, "home {home}*"),
            Self::Home(home, _) => write!(f, "home {home}"),
            Self::Office(_) => f.write_str("office"),
        }
    }
}

/// The namespaces; gone with it.
pub(crate) struct Internet {
    /// In front of every name, so that two runs do not meet.
    prefix: String,
    made: Vec<String>,
}

/// The router in the middle.
const CORE: &str = "core";

impl Internet {
    /// Makes the networks.
    ///
    /// # Errors
    /// What is not permitted or not installed.
    pub(crate) fn new(places: &[Place]) -> Result<Self, String> {
        let mut internet = Self {
            prefix: format!("karman{}-", std::process::id()),
            made: Vec::new(),
        };
        internet.namespace(CORE)?;
        internet.forward(CORE)?;
        for place in places {
            let name = place.namespace();
            internet.namespace(&name)?;
            let (own, gateway) = place.addresses();
            match place.router() {
                None => internet.link(&name, &own, CORE, &name, &gateway)?,
                Some((router, network)) => {
                    if !internet.made.contains(&internet.named(&router)) {
                        internet.router(&router, network, *place)?;
                    }
                    internet.cable(&name, &router, &name)?;
                    internet.ip(&router, &["link", "set", &name, "master", "lan"])?;
                    internet.address(&name, "eth0", &own)?;
                }
            }
            internet.ip(&name, &["route", "add", "default", "via", &gateway.to_string()])?;
        }
        Ok(internet)
    }

    /// Lets nothing pass between these places and those.
    ///
    /// # Errors
    /// What is not permitted.
    pub(crate) fn cut(&self, these: &[Place], those: &[Place]) -> Result<(), String> {
        let set = |places: &[Place]| {
            let addresses: Vec<String> = places.iter().map(|place| place.address().to_string()).collect();
            format!("{{ {} }}", addresses.join(", "))
        };
        let (these, those) = (set(these), set(those));
        self.nft(&format!(
            "table ip cut {{
                chain through {{
                    type filter hook forward priority 0;
                    ip saddr {these} ip daddr {those} drop;
                    ip saddr {those} ip daddr {these} drop;
                }}
            }}\n"
        ))
    }

    /// Lets everything pass again.
    ///
    /// # Errors
    /// What is not permitted.
    pub(crate) fn mend(&self) -> Result<(), String> {
        self.nft("delete table ip cut\n")
    }

    /// Lets links between places on the internet be cut: see [`Internet::part`].
    ///
    /// # Errors
    /// What is not permitted or not installed.
    pub(crate) fn with_sky(self) -> Result<Self, String> {
        self.nft(SKY)?;
        Ok(self)
    }

    /// Nothing passes between the two any more, in either direction, and nobody is told.
    pub(crate) fn part(&self, one: Place, other: Place) {
        self.change("add", one, other);
    }

    /// What was cut passes again.
    pub(crate) fn join(&self, one: Place, other: Place) {
        self.change("delete", one, other);
    }

    /// What goes to this place goes at this rate at most.
    pub(crate) fn slow(&self, to: Place, kbit: u64) {
        let rate = format!("{kbit}kbit");
        let (core, port) = (self.named(CORE), to.namespace());
        let shape = [
            "-n", &core, "qdisc", "add", "dev", &port, "root", "tbf", "rate", &rate, "burst", "16kb",
            "latency", "100ms",
        ];
        run("tc", &shape, "").expect("a link is slowed down");
    }

    fn change(&self, verb: &str, one: Place, other: Place) {
        let (one, other) = (one.addresses().0, other.addresses().0);
        let change = format!("{verb} element ip sky apart {{ {one} . {other}, {other} . {one} }}\n");
        self.nft(&change).expect("a link is changed");
    }

    fn nft(&self, rules: &str) -> Result<(), String> {
        run(
            "ip",
            &["netns", "exec", &self.named(CORE), "nft", "-f", "-"],
            rules,
        )
    }

    /// The command, run there.
    pub(crate) fn inside(&self, place: Place, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside
            .args(["netns", "exec", &self.named(&place.namespace())])
            .arg(command.get_program())
            .args(command.get_args())
            .current_dir(command.get_current_dir().unwrap_or_else(|| Path::new("/")));
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }

    fn named(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn namespace(&mut self, name: &str) -> Result<(), String> {
        let full = self.named(name);
        run("ip", &["netns", "add", &full], "")?;
        self.made.push(full);
        self.ip(name, &["link", "set", "lo", "up"])
    }

    /// A home's or the office's router, with a bridge for those behind it.
    fn router(&mut self, name: &str, network: u8, place: Place) -> Result<(), String> {
        self.namespace(name)?;
        self.forward(name)?;
        let outside = Ipv4Addr::new(198, 18, network, 2);
        let core = Ipv4Addr::new(198, 18, network, 1);
        self.link(name, &outside, CORE, name, &core)?;
        self.ip(name, &["route", "add", "default", "via", &core.to_string()])?;
        self.ip(name, &["link", "add", "lan", "type", "bridge"])?;
        let (_, gateway) = place.addresses();
        self.address(name, "lan", &gateway)?;
        let rules = match place {
            Place::Office(_) => {
                let behind = format!("{gateway}/24");
                self.ip(
                    CORE,
                    &["route", "add", &network_of(&behind), "via", &outside.to_string()],
                )?;
                NO_UDP.to_owned()
            }
            _ => translation(),
        };
        run(
            "ip",
            &["netns", "exec", &self.named(name), "nft", "-f", "-"],
            &rules,
        )
    }

    fn forward(&self, name: &str) -> Result<(), String> {
        let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        run(
            "ip",
            &["netns", "exec", &self.named(name), "sh", "-c", forward],
            "",
        )
    }

    /// A cable between two, with an address on either end.
    fn link(
        &self,
        name: &str,
        own: &Ipv4Addr,
        router: &str,
        port: &str,
        gateway: &Ipv4Addr,
    ) -> Result<(), String> {
        self.cable(name, router, port)?;
        self.address(name, "eth0", own)?;
        self.address(router, port, gateway)
    }

    fn cable(&self, name: &str, router: &str, port: &str) -> Result<(), String> {
        let (end, other) = (self.named(name), self.named(router));
        let cable = [
            "link", "add", "eth0", "netns", &end, "type", "veth", "peer", "name", port, "netns", &other,
        ];
        run("ip", &cable, "")?;
        self.ip(router, &["link", "set", port, "up"])
    }

    fn address(&self, name: &str, port: &str, address: &Ipv4Addr) -> Result<(), String> {
        self.ip(name, &["address", "add", &format!("{address}/24"), "dev", port])?;
        self.ip(name, &["link", "set", port, "up"])
    }

    fn ip(&self, name: &str, arguments: &[&str]) -> Result<(), String> {
        run("ip", &[&["-n", &self.named(name)], arguments].concat(), "")
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        for name in &self.made {
            let _ = run("ip", &["netns", "del", name], "");
        }
    }
}

fn network_of(gateway: &str) -> String {
    gateway.replacen(".1/", ".0/", 1)
}

/// Routers of homes drop what nobody inside asked for. One host's connections leave by a random port each: what one node
/// sees of it is of no use to another.
fn translation() -> String {
    let host = Place::Home(Place::SECOND_HOME, Place::UNPUNCHED).addresses().0;
    format!(
        "table ip home {{
            chain out {{
                type nat hook postrouting priority 100;
                ip saddr {host} oifname \"eth0\" masquerade fully-random;
                oifname \"eth0\" masquerade;
            }}
            chain own {{
                type filter hook input priority 0;
                iifname \"eth0\" ct state new drop;
            }}
            chain through {{
                type filter hook forward priority 0;
                iifname \"eth0\" ct state new drop;
            }}
        }}\n"
    )
}

const SKY: &str = "table ip sky {
    set apart { type ipv4_addr . ipv4_addr; }
    chain through {
        type filter hook forward priority 0;
        ip saddr . ip daddr @apart drop;
    }
}
";

const NO_UDP: &str = "table ip office {
    chain through {
        type filter hook forward priority 0;
        iifname \"eth0\" ip protocol udp drop;
        oifname \"eth0\" ip protocol udp drop;
    }
}
";

fn run(program: &str, arguments: &[&str], input: &str) -> Result<(), String> {
    let broken = |error: &dyn fmt::Display| format!("{program} {}: {error}", arguments.join(" "));
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| broken(&error))?;
    let mut stdin = child.stdin.take().ok_or_else(|| broken(&"no input"))?;
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().map_err(|error| broken(&error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(broken(&String::from_utf8_lossy(&output.stderr).trim())),
    }
}
