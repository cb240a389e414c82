//! The rules of a firewall table as `nft` commands.

use super::{Firewall, Hook, RuleAction, RuleCondition};

impl Firewall {
    /// The table as `nft` commands that a person would type.
    pub fn nft(&self) -> Vec<String> {
        let table = &self.table;
        let mut lines = vec![format!("nft add table inet {table}")];
        let rules = self.rules();
        for hook in [Hook::Prerouting, Hook::Output, Hook::Postrouting] {
            if rules.iter().any(|(at, _)| *at == hook) {
                lines.push(format!(
                    "nft add chain inet {table} {hook} '{{ type filter hook {hook} priority mangle; }}'"
                ));
            }
        }
        lines.extend(rules.iter().map(|(hook, rule)| {
            let conditions = rule
                .conditions
                .iter()
                .map(|condition| condition_words(*condition, self));
            let actions = rule.actions.iter().map(|action| action_words(*action, self.mask));
            let words: Vec<String> = conditions.chain(actions).collect();
            format!("nft add rule inet {table} {hook} {}", words.join(" "))
        }));
        lines
    }
}

fn condition_words(condition: RuleCondition, firewall: &Firewall) -> String {
    let Firewall { interface, mask, .. } = firewall;
    match condition {
        RuleCondition::Arrives => format!("iifname {interface}"),
        RuleCondition::Leaves => format!("oifname {interface}"),
        RuleCondition::LeavesElsewhere => format!("oifname != {interface}"),
        RuleCondition::Marked(is) => format!("meta mark and {mask:#x} {} 0", if is { "!=" } else { "==" }),
        RuleCondition::Ipv6(ipv6) => format!("meta nfproto {}", if ipv6 { "ipv6" } else { "ipv4" }),
        RuleCondition::Transport(protocol) => format!("meta l4proto {protocol}"),
        RuleCondition::Port(port) => format!("@th,16,16 {port}"),
        RuleCondition::Icmpv6Type(first, last) => format!("@th,0,8 {first}-{last}"),
        RuleCondition::Dscp { ipv6, dscp, is } => {
            let family = if ipv6 { "ip6" } else { "ip" };
            format!("{family} dscp {}{dscp}", if is { "" } else { "!= " })
        }
    }
}

fn action_words(action: RuleAction, mask: u32) -> String {
    match action {
        RuleAction::Mark(mark) => format!("meta mark set meta mark and {:#x} or {:#x}", !mask, mark & mask),
        RuleAction::EraseDscp { ipv6: true } => "ip6 dscp set 0".to_owned(),
        RuleAction::EraseDscp { ipv6: false } => "ip dscp set 0".to_owned(),
        RuleAction::Return => "return".to_owned(),
    }
}
