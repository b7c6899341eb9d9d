//! System calls.

use super::cursor::Cursor;
use crate::names;
use crate::script::{Call, Value};

/// How deep arguments may be nested.
const DEPTH_MAX: usize = 8;

/// `name(arguments) = result ERROR (words)`.
pub fn call(cursor: &mut Cursor<'_>) -> Result<Call, String> {
    let near = cursor.near();
    let name = cursor.word().to_string();
    if name.is_empty() {
        return Err(format!("neither packet nor call: {near}"));
    }
    cursor.need("(")?;
    let mut arguments = Vec::new();
    loop {
        cursor.skip_space();
        if cursor.take(")") {
            break;
        }
        if !arguments.is_empty() {
            cursor.need(",")?;
        }
        arguments.push(value(cursor, 0)?);
    }
    cursor.need("=")?;
    cursor.skip_blanks();
    let result = if cursor.take("...") { None } else { Some(cursor.number()?) };
    cursor.skip_blanks();
    let mut errno = None;
    if result == Some(-1) && cursor.sees("E") {
        let word = cursor.word();
        if !names::is_error(word) {
            return Err(format!("there is no error {word}"));
        }
        errno = Some(word.to_string());
    }
    cursor.skip_blanks();
    if cursor.take("(") {
        cursor.until(")").ok_or("( has no )")?;
    }
    Ok(Call { name, arguments, result, errno })
}

fn value(cursor: &mut Cursor<'_>, depth: usize) -> Result<Value, String> {
    if depth > DEPTH_MAX {
        return Err("arguments are nested too deep".into());
    }
    cursor.skip_space();
    if cursor.take("...") {
        return Ok(Value::Any);
    }
    if cursor.take("\"") {
        let text = cursor.until("\"").ok_or("a string has no end")?;
        return Ok(Value::Text(text.to_string()));
    }
    if cursor.take("[") {
        let mut all = Vec::new();
        loop {
            cursor.skip_space();
            if cursor.take("]") {
                return Ok(Value::List(all));
            }
            if !all.is_empty() {
                cursor.need(",")?;
            }
            all.push(value(cursor, depth + 1)?);
        }
    }
    if cursor.take("{") {
        let mut all = Vec::new();
        loop {
            cursor.skip_space();
            if cursor.take("}") {
                return Ok(Value::Fields(all));
            }
            if !all.is_empty() {
                cursor.need(",")?;
                cursor.skip_space();
            }
            field(cursor, depth + 1, &mut all)?;
        }
    }
    numbers(cursor)
}

/// `name=value`, or a value alone. `name(length)=value` is `name=value` and `namelen=length`.
fn field(
    cursor: &mut Cursor<'_>,
    depth: usize,
    all: &mut Vec<(String, Value)>,
) -> Result<(), String> {
    let name = if cursor.sees_letter() { cursor.word().to_string() } else { String::new() };
    if name.is_empty() {
        all.push((name, value(cursor, depth)?));
        return Ok(());
    }
    cursor.skip_space();
    if cursor.take("(") {
        all.push((format!("{name}len"), value(cursor, depth)?));
        cursor.need(")")?;
    }
    cursor.need("=")?;
    all.push((name, value(cursor, depth)?));
    Ok(())
}

/// Numbers and names of numbers, joined by `|`.
fn numbers(cursor: &mut Cursor<'_>) -> Result<Value, String> {
    let mut all = 0;
    loop {
        cursor.skip_space();
        let near = cursor.near();
        let first = near.chars().nth(1).unwrap_or(' ');
        if first.is_ascii_digit() || first == '-' {
            all |= cursor.number()?;
        } else {
            let word = cursor.word();
            match names::number(word) {
                Some(number) => all |= number,
                None if word.is_empty() => return Err(format!("an argument is missing at {near}")),
                None => return Ok(Value::Name(word.to_string())),
            }
        }
        cursor.skip_space();
        if !cursor.take("|") {
            return Ok(Value::Number(all));
        }
    }
}
