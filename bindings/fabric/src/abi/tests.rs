//! Comparison of layouts and constants with those of the installed headers: a C program with the
//! names here is generated, compiled and run, and its numbers are compared.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

use super::Provider;
use super::constants::{BITS, ERRORS, NUMBERS};
use super::entries::*;
use super::info::*;
use super::objects::*;

/// C expressions with the values that they have here.
type Expected = Vec<(String, u64)>;

/// A structure: its C name, its type here, and its fields, with the C name where it differs.
macro_rules! layout {
    ($expected:ident, $c:literal, $type:ty, $($field:ident $(= $name:literal)?),* $(,)?) => {
        $expected.push((format!("sizeof({})", $c), size_of::<$type>() as u64));
        $(
            #[allow(unused_mut, unused_assignments)]
            let mut name = stringify!($field);
            $(name = $name;)?
            $expected.push((format!("offsetof({}, {name})", $c), offset_of!($type, $field) as u64));
        )*
    };
}

fn attributes(of: &mut Expected) {
    layout!(
        of,
        "struct fi_tx_attr",
        TxAttr,
        caps,
        mode,
        op_flags,
        msg_order,
        comp_order,
        inject_size,
        size,
        iov_limit,
        rma_iov_limit,
        tclass
    );
    layout!(
        of,
        "struct fi_rx_attr",
        RxAttr,
        caps,
        mode,
        op_flags,
        msg_order,
        comp_order,
        total_buffered_recv,
        size,
        iov_limit
    );
    layout!(
        of,
        "struct fi_ep_attr",
        EpAttr,
        kind = "type",
        protocol,
        protocol_version,
        max_msg_size,
        msg_prefix_size,
        max_order_raw_size,
        max_order_war_size,
        max_order_waw_size,
        mem_tag_format,
        tx_ctx_cnt,
        rx_ctx_cnt,
        auth_key_size,
        auth_key
    );
    layout!(
        of,
        "struct fi_domain_attr",
        DomainAttr,
        domain,
        name,
        threading,
        control_progress,
        data_progress,
        resource_mgmt,
        av_type,
        mr_mode,
        mr_key_size,
        cq_data_size,
        cq_cnt,
        ep_cnt,
        tx_ctx_cnt,
        rx_ctx_cnt,
        max_ep_tx_ctx,
        max_ep_rx_ctx,
        max_ep_stx_ctx,
        max_ep_srx_ctx,
        cntr_cnt,
        mr_iov_limit,
        caps,
        mode,
        auth_key,
        auth_key_size,
        max_err_data,
        mr_cnt,
        tclass
    );
    layout!(
        of,
        "struct fi_fabric_attr",
        FabricAttr,
        fabric,
        name,
        prov_name,
        prov_version,
        api_version
    );
    layout!(
        of,
        "struct fi_info",
        Info,
        next,
        caps,
        mode,
        addr_format,
        src_addrlen,
        dest_addrlen,
        src_addr,
        dest_addr,
        handle,
        tx_attr,
        rx_attr,
        ep_attr,
        domain_attr,
        fabric_attr,
        nic
    );
    layout!(
        of,
        "struct fi_av_attr",
        AvAttr,
        kind = "type",
        rx_ctx_bits,
        count,
        ep_per_node,
        name,
        map_addr,
        flags
    );
    layout!(
        of,
        "struct fi_cq_attr",
        CqAttr,
        size,
        flags,
        format,
        wait_obj,
        signaling_vector,
        wait_cond,
        wait_set
    );
    layout!(of, "struct fi_eq_attr", EqAttr, size, flags, wait_obj, signaling_vector, wait_set);
    layout!(of, "struct fi_cntr_attr", CntrAttr, events, wait_obj, wait_set, flags);
    layout!(of, "struct fi_wait_attr", WaitAttr, wait_obj, flags);
    layout!(
        of,
        "struct fi_mr_attr",
        MrAttr,
        mr_iov,
        iov_count,
        access,
        offset,
        requested_key,
        context,
        auth_key_size,
        auth_key,
        iface,
        device
    );
}

fn entries(of: &mut Expected) {
    layout!(of, "struct fi_cq_tagged_entry", CqEntry, op_context, flags, len, buf, data, tag);
    layout!(
        of,
        "struct fi_cq_err_entry",
        CqErrEntry,
        op_context,
        flags,
        len,
        buf,
        data,
        tag,
        olen,
        err,
        prov_errno,
        err_data,
        err_data_size
    );
    layout!(
        of,
        "struct fi_eq_err_entry",
        EqErrEntry,
        fid,
        context,
        data,
        err,
        prov_errno,
        err_data,
        err_data_size,
    );
    layout!(of, "struct fi_eq_entry", EqEntry, fid, context, data);
    layout!(of, "struct fi_msg", Msg, msg_iov, desc, iov_count, addr, context, data);
    layout!(
        of,
        "struct fi_msg_tagged",
        MsgTagged,
        msg_iov,
        desc,
        iov_count,
        addr,
        tag,
        ignore,
        context,
        data
    );
    // The shorter formats end where the queue ends them.
    for (c, end) in [
        ("struct fi_cq_entry", offset_of!(CqEntry, flags)),
        ("struct fi_cq_msg_entry", offset_of!(CqEntry, buf)),
        ("struct fi_cq_data_entry", offset_of!(CqEntry, tag)),
    ] {
        of.push((format!("sizeof({c})"), end as u64));
    }
}

fn objects(of: &mut Expected) {
    layout!(
        of,
        "struct fi_provider",
        Provider,
        version,
        fi_version,
        context,
        name,
        getinfo,
        fabric,
        cleanup
    );
    layout!(of, "struct fid", Fid, class = "fclass", context, ops);
    layout!(of, "struct fi_ops", FidOps, size, close, bind, control, ops_open, tostr, ops_set);
    layout!(of, "struct fid_fabric", FidFabric, fid, ops, api_version);
    layout!(
        of,
        "struct fi_ops_fabric",
        FabricOps,
        size,
        domain,
        passive_ep,
        eq_open,
        wait_open,
        trywait,
        domain2
    );
    layout!(of, "struct fid_domain", FidDomain, fid, ops, mr);
    layout!(
        of,
        "struct fi_ops_domain",
        DomainOps,
        size,
        av_open,
        cq_open,
        endpoint,
        scalable_ep,
        cntr_open,
        poll_open,
        stx_ctx,
        srx_ctx,
        query_atomic,
        query_collective,
        endpoint2
    );
    layout!(of, "struct fi_ops_mr", MrOps, size, reg, regv, regattr);
    layout!(of, "struct fid_mr", FidMr, fid, mem_desc, key);
    layout!(of, "struct fid_av", FidAv, fid, ops);
    layout!(
        of,
        "struct fi_ops_av",
        AvOps,
        size,
        insert,
        insertsvc,
        insertsym,
        remove,
        lookup,
        straddr,
        av_set
    );
    layout!(of, "struct fid_cq", FidCq, fid, ops);
    layout!(
        of,
        "struct fi_ops_cq",
        CqOps,
        size,
        read,
        readfrom,
        readerr,
        sread,
        sreadfrom,
        signal,
        strerror
    );
    layout!(of, "struct fid_cntr", FidCntr, fid, ops);
    layout!(of, "struct fi_ops_cntr", CntrOps, size, read, readerr, add, set, wait, adderr, seterr);
    layout!(of, "struct fid_eq", FidEq, fid, ops);
    layout!(of, "struct fi_ops_eq", EqOps, size, read, readerr, write, sread, strerror);
    layout!(of, "struct fid_wait", FidWait, fid, ops);
    layout!(of, "struct fi_ops_wait", WaitOps, size, wait);
    layout!(of, "struct fid_poll", FidPoll, fid, ops);
    layout!(of, "struct fi_ops_poll", PollOps, size, poll, poll_add, poll_del);
    layout!(of, "struct fid_ep", FidEp, fid, ops, cm, msg, rma, tagged, atomic, collective);
    layout!(
        of,
        "struct fi_ops_ep",
        EpOps,
        size,
        cancel,
        getopt,
        setopt,
        tx_ctx,
        rx_ctx,
        rx_size_left,
        tx_size_left
    );
    layout!(
        of,
        "struct fi_ops_cm",
        CmOps,
        size,
        setname,
        getname,
        getpeer,
        connect,
        listen,
        accept,
        reject,
        shutdown,
        join
    );
    layout!(
        of,
        "struct fi_ops_msg",
        MsgOps,
        size,
        recv,
        recvv,
        recvmsg,
        send,
        sendv,
        sendmsg,
        inject,
        senddata,
        injectdata
    );
    layout!(
        of,
        "struct fi_ops_tagged",
        TaggedOps,
        size,
        recv,
        recvv,
        recvmsg,
        send,
        sendv,
        sendmsg,
        inject,
        senddata,
        injectdata
    );
    layout!(of, "struct fi_ops_rma", RmaOps, size,);
    layout!(of, "struct fi_ops_atomic", AtomicOps, size,);
    layout!(of, "struct fi_ops_collective", CollectiveOps, size,);
}

/// The C compiler's values of the expressions.
fn measured(expected: &Expected) -> HashMap<String, u64> {
    let mut source = String::new();
    for header in [
        "fabric",
        "fi_atomic",
        "fi_cm",
        "fi_collective",
        "fi_domain",
        "fi_endpoint",
        "fi_eq",
        "fi_errno",
        "fi_rma",
        "fi_tagged",
        "providers/fi_prov",
    ] {
        writeln!(source, "#include <rdma/{header}.h>").expect("a string takes it");
    }
    source.push_str("#include <stdio.h>\nint main(void) {\n");
    for (expression, _) in expected {
        writeln!(
            source,
            "printf(\"%s=%llu\\n\", \"{expression}\", (unsigned long long)({expression}));"
        )
        .expect("a string takes it");
    }
    source.push_str("return 0; }\n");
    let folder = std::env::temp_dir().join(format!("outboard-fabric-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (program, file) = (folder.join("layouts"), folder.join("layouts.c"));
    std::fs::write(&file, source).expect("a file");
    let compiled = Command::new("cc").arg("-o").arg(&program).arg(&file).output();
    let compiled = compiled.expect("a C compiler: scripts/setup build programs");
    assert!(
        compiled.status.success(),
        "scripts/setup programs installs libfabric-dev: {}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let output = Command::new(&program).output().expect("the program").stdout;
    std::fs::remove_dir_all(&folder).expect("the folder");
    let text = String::from_utf8(output).expect("text");
    let line = |line: &str| {
        let (expression, value) = line.rsplit_once('=').expect("a line");
        (expression.to_owned(), value.parse().expect("a number"))
    };
    text.lines().map(line).collect()
}

#[test]
fn layouts_and_constants_are_those_of_the_headers() {
    let mut expected = Expected::new();
    attributes(&mut expected);
    entries(&mut expected);
    objects(&mut expected);
    for (name, value) in [BITS, ERRORS, NUMBERS].into_iter().flatten() {
        // As wide as C has it: its signed constants are compared by their bits.
        expected.push(((*name).to_owned(), *value));
    }
    let measured = measured(&expected);
    let wrong: Vec<String> = expected
        .iter()
        .filter(|(expression, value)| measured.get(expression) != Some(value))
        .map(|(expression, value)| {
            format!("{expression} is {:?}, here {value}", measured.get(expression))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
