//! Reading scripts.

mod call;
mod cursor;
mod packet;

use std::time::Duration;

use crate::errors::ParseError;
use crate::script::*;
use cursor::Cursor;

/// Reads a script.
pub fn script(text: &str) -> Result<Script, ParseError> {
    let mut script = Script {
        title: String::new(),
        kernel: Expectation::Agrees,
        tolerance: None,
        mtu: 1500,
        version: Version::default(),
        settings: Vec::new(),
        events: Vec::new(),
    };
    header(text, &mut script)?;
    let clean = without_comments(text)?;
    let mut cursor = Cursor::new(&clean);
    loop {
        cursor.skip_space();
        if cursor.is_done() {
            break;
        }
        let line = cursor.line();
        one(&mut cursor, &mut script).map_err(|what| ParseError { line, what })?;
    }
    if script.title.is_empty() {
        let what = "a script begins with a comment that says what it shows".into();
        return Err(ParseError { line: 1, what });
    }
    Ok(script)
}

/// What the comments at the beginning say.
fn header(text: &str, script: &mut Script) -> Result<(), ParseError> {
    let comments = text.lines().map(str::trim).take_while(|line| line.starts_with("//"));
    for (line, comment) in (1..).zip(comments) {
        let comment = comment.trim_start_matches('/').trim();
        let Some(of_kernel) = comment.strip_prefix("kernel:") else {
            if script.title.is_empty() {
                script.title = comment.to_string();
            }
            continue;
        };
        let reason = |prefix: &str| {
            let rest = of_kernel.trim().strip_prefix(prefix)?.trim();
            let reason = rest.strip_prefix('(')?.strip_suffix(')')?;
            (!reason.is_empty()).then(|| reason.to_string())
        };
        script.kernel = reason("differs")
            .map(Expectation::Differs)
            .or_else(|| reason("not applicable").map(Expectation::NotApplicable))
            .ok_or_else(|| ParseError {
                line,
                what: "after `kernel:` comes `differs (reason)` or `not applicable (reason)`"
                    .into(),
            })?;
    }
    Ok(())
}

/// The text with comments turned to spaces, so that lines stay where they are.
fn without_comments(text: &str) -> Result<String, ParseError> {
    let open = |clean: &str, what: &str| ParseError {
        line: clean.matches('\n').count() + 1,
        what: what.into(),
    };
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("//") || (first == '#' && clean.ends_with('\n')) {
            let end = rest.find('\n').unwrap_or(rest.len());
            rest = &rest[end..];
        } else if rest.starts_with("/*") {
            let end = rest
                .find("*/")
                .ok_or_else(|| open(&clean, "a comment that begins with /* has no end"))?;
            clean.extend(rest[..end].chars().filter(|c| *c == '\n'));
            rest = &rest[end + 2..];
        } else if first == '"' {
            let end = rest[1..].find('"').ok_or_else(|| open(&clean, "a string has no end"))? + 2;
            clean.push_str(&rest[..end]);
            rest = &rest[end..];
        } else {
            clean.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    Ok(clean)
}

/// An option, a setting or an event.
fn one(cursor: &mut Cursor<'_>, script: &mut Script) -> Result<(), String> {
    if cursor.take("--") {
        return option(cursor, script);
    }
    if cursor.take("`") {
        return settings(cursor, script);
    }
    let line = cursor.line();
    let (when, until) = time(cursor)?;
    cursor.skip_space();
    let action = if cursor.take("<") {
        Action::Inject(packet::packet(cursor, true)?)
    } else if cursor.take(">") {
        Action::Expect(packet::packet(cursor, false)?)
    } else if cursor.take("%{") {
        let body = cursor.until("}%").ok_or("%{ has no }%")?;
        Action::Assert(conditions(body)?)
    } else if cursor.take("`") {
        return Err("a command can only stand at the beginning, as `sysctl -q name=value`".into());
    } else {
        Action::Call(call::call(cursor)?, until)
    };
    if until.is_some() && !matches!(action, Action::Call(..)) {
        return Err("only a call takes time from ... to".into());
    }
    script.events.push(Event { line, when, action });
    Ok(())
}

fn option(cursor: &mut Cursor<'_>, script: &mut Script) -> Result<(), String> {
    let name = cursor.word();
    if !cursor.take("=") {
        return Err(format!("--{name} needs =value"));
    }
    let value = cursor.run(|c| c.is_ascii_alphanumeric() || c == '-');
    if name == "ip_version" {
        script.version = match value {
            "ipv4" => Version::V4,
            "ipv6" => Version::V6,
            "ipv4-mapped-ipv6" => Version::Mapped,
            _ => {
                return Err(format!("--ip_version is ipv4, ipv6 or ipv4-mapped-ipv6, not {value}"));
            }
        };
        return Ok(());
    }
    let number = || value.parse::<u64>().map_err(|_| format!("--{name}: {value} is no number"));
    match name {
        "tolerance_usecs" => script.tolerance = Some(Duration::from_micros(number()?)),
        "mtu" => script.mtu = u16::try_from(number()?).map_err(|_| "--mtu is at most 65535")?,
        _ => {
            return Err(format!(
                "there is no option --{name}; there are tolerance_usecs, mtu and ip_version"
            ));
        }
    }
    Ok(())
}

/// `` `sysctl -q name=value other=value` ``, several separated by lines or semicolons.
fn settings(cursor: &mut Cursor<'_>, script: &mut Script) -> Result<(), String> {
    let body = cursor.until("`").ok_or("a command has no closing backquote")?;
    for command in body.split(['\n', ';']).map(str::trim).filter(|command| !command.is_empty()) {
        let words = command
            .strip_prefix("sysctl")
            .ok_or_else(|| format!("`{command}`: the only command is sysctl -q name=value"))?;
        for word in words.split_whitespace().filter(|word| !word.starts_with('-')) {
            let (name, value) =
                word.split_once('=').ok_or_else(|| format!("sysctl {word}: name=value"))?;
            script.settings.push((name.to_string(), value.replace('"', "")));
        }
    }
    Ok(())
}

/// The time of an event, and for a call when it returns.
fn time(cursor: &mut Cursor<'_>) -> Result<(When, Option<u64>), String> {
    if cursor.take("*") {
        return Ok((When::Any, None));
    }
    let relative = cursor.take("+");
    let from = cursor.seconds()?;
    let mut until = None;
    let mut to = from;
    if cursor.take("...") {
        if cursor.take("+") != relative && !relative {
            return Err("both times count from the same moment".into());
        }
        until = Some(cursor.seconds()?);
    } else if cursor.take("~") {
        if cursor.take("+") != relative {
            return Err("both times of a range count from the same moment".into());
        }
        to = cursor.seconds()?;
    }
    Ok((When::At { relative, from, to }, until))
}

/// `assert a == 1 and b < 2; assert c >= 3`; what follows a comma is ignored, as it only tells.
fn conditions(body: &str) -> Result<Vec<Condition>, String> {
    let mut all = Vec::new();
    for statement in body.split(['\n', ';']).map(str::trim).filter(|text| !text.is_empty()) {
        let rest = statement
            .strip_prefix("assert")
            .ok_or_else(|| format!("`{statement}`: only assert name == number"))?;
        let rest = rest.split(',').next().unwrap_or_default();
        for part in rest.split(" and ") {
            let words: Vec<&str> = part.split_whitespace().collect();
            let &[name, operator, number] = words.as_slice() else {
                return Err(format!("`{part}`: name, operator, number, with spaces"));
            };
            if !["==", "!=", "<", "<=", ">", ">="].contains(&operator) {
                return Err(format!("{operator} compares nothing"));
            }
            let number = match number {
                "TCP_CA_Open" => 0,
                "TCP_CA_Disorder" => 1,
                "TCP_CA_CWR" => 2,
                "TCP_CA_Recovery" => 3,
                "TCP_CA_Loss" => 4,
                number => number.parse().map_err(|_| format!("{number} is no number"))?,
            };
            let (name, operator) = (name.to_string(), operator.to_string());
            all.push(Condition { name, operator, number });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "// Shows nothing.\n// kernel: differs (it does)\n--mtu=1000\n\
        `sysctl -q net.ipv4.tcp_sack=0`\n\
        0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n\
        +.1 < S 0:0(0) win 32792 <mss 1000,sackOK,nop,nop,nop,wscale 7>\n\
        +0~+.01 > S. 0:0(0) ack 1 <...>\n\
        +0...0.2 accept(3, ..., ...) = 4\n\
        * %{ assert tcpi_snd_cwnd == 10, tcpi_snd_cwnd }%\n\
        +0 read(4, ..., 1000) = -1 EAGAIN (Resource temporarily unavailable)\n";

    #[test]
    fn a_script_is_read_with_its_header_and_times() {
        let script = script(TEXT).unwrap();
        assert_eq!(script.title, "Shows nothing.");
        assert_eq!(script.kernel, Expectation::Differs("it does".into()));
        assert_eq!((script.mtu, script.events.len()), (1000, 6));
        assert_eq!(script.settings, [("net.ipv4.tcp_sack".to_string(), "0".to_string())]);
        let times: Vec<When> = script.events.iter().map(|event| event.when).collect();
        assert_eq!(times[1], When::At { relative: true, from: 100_000_000, to: 100_000_000 });
        assert_eq!(times[2], When::At { relative: true, from: 0, to: 10_000_000 });
        let Action::Call(call, until) = &script.events[5].action else { panic!("no call") };
        assert_eq!((call.result, until), (Some(-1), &None));
        assert_eq!(call.errno.as_deref(), Some("EAGAIN"));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let told = |line: &str| script(&format!("// t\n{line}\n")).unwrap_err().to_string();
        assert!(told("+0 < S 0:1(0)").starts_with("line 2: "));
        assert!(told("--speed=3").contains("no option --speed"));
        assert!(told("+0 frobnicate(3) = ").starts_with("line 2: "));
        assert!(told("`rm -rf x`").contains("only command is sysctl"));
        assert!(told("/* open").starts_with("line 2: "));
        assert!(told("+0 write(3, \"ab").starts_with("line 2: "));
        assert!(script("+0 close(3) = 0").is_err());
    }
}
