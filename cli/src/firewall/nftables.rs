//! What `nft -j list ruleset` prints (libnftables-json(5)).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use port::Protocol;
use serde_json::Value;

use super::{Matches, Rule};

/// Hooks that this machine's own packets pass. A chain without a hook may be reached from any.
const HOOKS: [&str; 5] = ["ingress", "prerouting", "input", "output", "postrouting"];

fn word<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Family, table and name of a chain or set.
type Place<'a> = (&'a str, &'a str, &'a str);

fn place<'a>(object: &'a Value, key: &str) -> Place<'a> {
    (word(object, "family"), word(object, "table"), word(object, key))
}

/// All rules, and the policies that drop, but for `tables_of_iptables` of IPv4 and IPv6, which
/// iptables itself shows better.
pub(super) fn rules(text: &str, tables_of_iptables: &[String]) -> Vec<Rule> {
    let parsed: Value = serde_json::from_str(text).unwrap_or_default();
    let objects = parsed.get("nftables").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let of = |kind| objects.iter().filter_map(move |object| object.get(kind));
    let mut sets: BTreeMap<Place<'_>, &Value> = BTreeMap::new();
    for set in of("set").chain(of("map")) {
        if let Some(elements) = set.get("elem") {
            sets.insert(place(set, "name"), elements);
        }
    }
    let is_shown_elsewhere = |(family, table, _): Place<'_>| {
        matches!(family, "ip" | "ip6") && tables_of_iptables.iter().any(|name| name == table)
    };
    let is_passed = |hook: Option<&str>| hook.is_none_or(|hook| HOOKS.contains(&hook));
    let hook = |chain: Place<'_>| {
        let found = of("chain").find(|one| place(one, "name") == chain)?;
        found.get("hook").and_then(Value::as_str)
    };
    let shown = |(family, table, chain): Place<'_>| format!("nftables {family} {table} {chain}");
    let policies = of("chain").filter(|chain| word(chain, "policy") == "drop");
    let policies = policies.map(|chain| (place(chain, "name"), None));
    let rules = of("rule").map(|rule| (place(rule, "chain"), rule.get("expr")));
    policies
        .chain(rules)
        .filter(|(at, _)| !is_shown_elsewhere(*at) && is_passed(hook(*at)))
        .map(|(at, expression)| match expression {
            None => Rule {
                place: shown(at),
                text: "policy drop".to_owned(),
                matches: Matches { acts: true, ..Matches::default() },
            },
            Some(expression) => {
                let mut rule =
                    Rule { place: shown(at), text: String::new(), matches: Matches::default() };
                let statements = expression.as_array().map_or(&[][..], Vec::as_slice);
                let words: Vec<String> = statements.iter().filter_map(statement).collect();
                rule.text = words.join(" ");
                for statement in statements {
                    take_in(&mut rule.matches, statement, &|name| {
                        sets.get(&(at.0, at.1, name)).copied()
                    });
                }
                rule
            }
        })
        .collect()
}

/// Lets a statement narrow down what a rule matches.
fn take_in<'a>(
    matches: &mut Matches,
    statement: &'a Value,
    set: &dyn Fn(&str) -> Option<&'a Value>,
) {
    if let Some(condition) = statement.get("match") {
        let (Some(left), Some(right)) = (condition.get("left"), condition.get("right")) else {
            return;
        };
        let but = word(condition, "op") == "!=";
        let named = right.as_str().and_then(|name| name.strip_prefix('@')).and_then(set);
        compare(matches, left, named.unwrap_or(right), but);
        return;
    }
    if let Some(map) = statement.get("vmap") {
        matches.acts = true;
        if let (Some(key), Some(data)) = (map.get("key"), map.get("data")) {
            let named = data.as_str().and_then(|name| name.strip_prefix('@')).and_then(set);
            let pairs = named.or_else(|| data.get("set")).and_then(Value::as_array);
            let keys: Option<Vec<Value>> =
                pairs.map(|pairs| pairs.iter().filter_map(|pair| pair.get(0)).cloned().collect());
            if let Some(keys) = keys {
                compare(matches, key, &Value::Array(keys), false);
            }
        }
        return;
    }
    let harmless = ["accept", "return", "continue", "counter", "log", "comment"];
    let is_harmless = harmless.iter().any(|word| statement.get(*word).is_some());
    matches.acts |= !is_harmless;
    matches.translates |= ["masquerade", "snat"].iter().any(|word| statement.get(*word).is_some());
}

fn compare(matches: &mut Matches, left: &Value, right: &Value, but: bool) {
    if let Some(payload) = left.get("payload") {
        let protocol = match word(payload, "protocol") {
            "tcp" => Some(Protocol::Tcp),
            "udp" => Some(Protocol::Udp),
            "th" => None,
            "ip" | "ip6" if matches!(word(payload, "field"), "protocol" | "nexthdr") => {
                return protocols(matches, right, but);
            }
            "icmp" | "icmpv6" | "sctp" | "dccp" | "arp" => {
                matches.is_foreign = true;
                return;
            }
            _ => return,
        };
        matches.protocol = matches.protocol.or(protocol);
        if matches!(word(payload, "field"), "dport" | "sport")
            && let Some(ranges) = ranges(right)
        {
            matches.name_ports(ranges, but);
        }
    } else if let Some(meta) = left.get("meta") {
        match word(meta, "key") {
            "l4proto" => protocols(matches, right, but),
            "iifname" | "oifname" | "iif" | "oif" if right == "lo" && !but => {
                matches.is_foreign = true;
            }
            _ => {}
        }
    }
}

/// The protocol is one of these.
fn protocols(matches: &mut Matches, right: &Value, but: bool) {
    let mut names: Vec<&str> = match elements(right) {
        Some(elements) => elements.iter().filter_map(Value::as_str).collect(),
        None => right.as_str().into_iter().collect(),
    };
    if but || names.is_empty() {
        return;
    }
    names.retain(|name| matches!(*name, "tcp" | "udp"));
    match names[..] {
        [] => matches.is_foreign = true,
        ["tcp"] => matches.protocol = Some(Protocol::Tcp),
        ["udp"] => matches.protocol = Some(Protocol::Udp),
        _ => {}
    }
}

/// Elements of a set, named or not.
fn elements(value: &Value) -> Option<&Vec<Value>> {
    value.as_array().or_else(|| value.get("set").and_then(Value::as_array))
}

/// The ports that a value means; `None` when it cannot be understood.
fn ranges(value: &Value) -> Option<Vec<RangeInclusive<u16>>> {
    if let Some(elements) = elements(value) {
        let each = elements.iter().map(ranges).collect::<Option<Vec<_>>>()?;
        return Some(each.into_iter().flatten().collect());
    }
    let number = |value: &Value| u16::try_from(value.as_u64()?).ok();
    if let Some(range) = value.get("range") {
        return Some(vec![number(range.get(0)?)?..=number(range.get(1)?)?]);
    }
    if let Some(element) = value.get("elem").and_then(|element| element.get("val")) {
        return ranges(element);
    }
    number(value).map(|port| vec![port..=port])
}

/// A statement as people write it, roughly.
fn statement(statement: &Value) -> Option<String> {
    let (kind, body) = statement.as_object()?.iter().next()?;
    Some(match kind.as_str() {
        "match" => {
            let operator = match word(body, "op") {
                "==" | "in" => "",
                other => other,
            };
            let parts = [value(body.get("left")?), operator.to_owned(), value(body.get("right")?)];
            let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            parts.join(" ")
        }
        "counter" => return None,
        "jump" | "goto" => format!("{kind} {}", word(body, "target")),
        "vmap" => format!("{} vmap {}", value(body.get("key")?), value(body.get("data")?)),
        _ if body.is_null() => kind.clone(),
        _ => format!("{kind} {}", value(body)).trim_end().to_owned(),
    })
}

fn value(of: &Value) -> String {
    let listed = |values: &[Value]| values.iter().map(value).collect::<Vec<_>>().join(", ");
    match of {
        Value::String(text) => text.clone(),
        Value::Array(values) => listed(values),
        Value::Object(object) => match object.iter().next() {
            Some((_, body)) if object.contains_key("payload") => {
                format!("{} {}", word(body, "protocol"), word(body, "field"))
            }
            Some((kind, body)) if object.contains_key("meta") || object.contains_key("ct") => {
                match kind.as_str() {
                    "ct" => format!("ct {}", word(body, "key")),
                    _ => word(body, "key").to_owned(),
                }
            }
            Some((_, Value::Array(values))) if object.contains_key("set") => {
                format!("{{ {} }}", listed(values))
            }
            Some((_, Value::Array(ends))) if object.contains_key("range") => {
                ends.iter().map(value).collect::<Vec<_>>().join("-")
            }
            Some((kind, body)) if body.is_null() => kind.clone(),
            Some((kind, body)) => format!("{kind} {}", value(body)),
            None => String::new(),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As nft 1.0.6 prints it.
    const TEXT: &str = r#"{"nftables": [
        {"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
        {"table": {"family": "inet", "name": "t", "handle": 1}},
        {"chain": {"family": "inet", "table": "t", "name": "input", "handle": 1, "type": "filter",
            "hook": "input", "prio": 0, "policy": "drop"}},
        {"chain": {"family": "inet", "table": "t", "name": "forward", "handle": 2,
            "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}},
        {"set": {"family": "inet", "name": "mail", "table": "t", "type": "inet_service",
            "elem": [25, {"range": [465, 466]}]}},
        {"rule": {"family": "inet", "table": "t", "chain": "input", "handle": 3, "expr": [
            {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}},
                "right": {"set": [22, {"range": [80, 90]}]}}}, {"accept": null}]}},
        {"rule": {"family": "inet", "table": "t", "chain": "input", "handle": 4, "expr": [
            {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}},
                "right": "@mail"}}, {"counter": {"packets": 0, "bytes": 0}}, {"drop": null}]}},
        {"rule": {"family": "inet", "table": "t", "chain": "input", "handle": 5, "expr": [
            {"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": "invalid"}},
            {"drop": null}]}},
        {"rule": {"family": "inet", "table": "t", "chain": "input", "handle": 6, "expr": [
            {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "lo"}},
            {"drop": null}]}},
        {"rule": {"family": "inet", "table": "t", "chain": "input", "handle": 7, "expr": [
            {"vmap": {"key": {"payload": {"protocol": "udp", "field": "dport"}},
                "data": {"set": [[53, {"accept": null}], [54, {"jump": {"target": "x"}}]]}}}]}},
        {"rule": {"family": "inet", "table": "t", "chain": "forward", "handle": 8, "expr": [
            {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}},
                "right": 22}}, {"drop": null}]}},
        {"rule": {"family": "ip", "table": "filter", "chain": "INPUT", "handle": 9, "expr": [
            {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}},
                "right": 22}}, {"drop": null}]}}
    ]}"#;

    #[test]
    fn every_rule_says_which_ports_it_concerns() {
        let rules = rules(TEXT, &["filter".to_owned()]);
        let concerned = |protocol, port| -> Vec<&str> {
            let mine = rules.iter().filter(|rule| rule.matches.concern(protocol, port));
            mine.map(|rule| rule.text.as_str()).collect()
        };
        let always = ["policy drop", "ct state invalid drop"];
        assert_eq!(
            concerned(Protocol::Tcp, 85),
            [always[0], "tcp dport { 22, 80-90 } accept", always[1]]
        );
        assert_eq!(concerned(Protocol::Tcp, 465), [always[0], "tcp dport @mail drop", always[1]]);
        assert_eq!(concerned(Protocol::Tcp, 91), always);
        assert_eq!(concerned(Protocol::Udp, 85), always);
        let mapped = "udp dport vmap { 53, accept, 54, jump target x }";
        assert_eq!(concerned(Protocol::Udp, 54), [always[0], always[1], mapped]);
        assert_eq!(rules[0].place, "nftables inet t input");
        assert!(super::rules("no json", &[]).is_empty());
        assert!(rules.iter().all(|rule| !rule.matches.translates));
    }

    #[test]
    fn rules_that_give_this_machines_address_to_others_translate() {
        let rule = |expression: &str| {
            let rule = r#"{"rule": {"family": "ip", "table": "nat", "chain": "post", "expr": ["#;
            rules(&format!("{{\"nftables\": [{rule}{expression}]}}}}]}}"), &[])
        };
        for (expression, translates) in [
            (r#"{"masquerade": null}"#, true),
            (r#"{"snat": {"addr": "10.0.0.1"}}"#, true),
            (r#"{"dnat": {"addr": "10.0.0.1"}}"#, false),
        ] {
            let rules = rule(expression);
            assert_eq!(rules.len(), 1, "{expression}");
            assert_eq!(rules[0].matches.translates, translates, "{expression}");
        }
    }
}
