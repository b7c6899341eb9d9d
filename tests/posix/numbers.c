/* What TCP_INFO tells of the same exchange. Prints the same on kernel sockets and under the library:
   amounts as they are, rates and times as whether there are any.
   Usage: numbers PEER-ADDRESS PORT (of the program peer) */
#define _GNU_SOURCE
#include "probing.h"
#include <stdint.h>

/* linux/tcp.h has what the C library's netinet/tcp.h lacks, and may not be included beside it. */
struct numbers {
    uint8_t state, ca_state, retransmits, probes, backoff, options, scales, limits;
    uint32_t rto, ato, snd_mss, rcv_mss, unacked, sacked, lost, retrans, fackets;
    uint32_t last_data_sent, last_ack_sent, last_data_recv, last_ack_recv;
    uint32_t pmtu, rcv_ssthresh, rtt, rttvar, snd_ssthresh, snd_cwnd, advmss, reordering;
    uint32_t rcv_rtt, rcv_space, total_retrans;
    uint64_t pacing_rate, max_pacing_rate, bytes_acked, bytes_received;
    uint32_t segs_out, segs_in, notsent_bytes, min_rtt, data_segs_in, data_segs_out;
    uint64_t delivery_rate, busy_time, rwnd_limited, sndbuf_limited;
    uint32_t delivered, delivered_ce;
    uint64_t bytes_sent, bytes_retrans;
    uint32_t dsack_dups, reord_seen, rcv_ooopack, snd_wnd, rcv_wnd, rehash;
    uint16_t total_rto, total_rto_recoveries;
    uint32_t total_rto_time;
};

static char bytes[1 << 20];

static struct numbers of(int fd) {
    struct numbers value = {0};
    socklen_t len = sizeof value;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &value, &len)) say("TCP_INFO %s", result(-1));
    return value;
}

/* When everything sent has been acknowledged. */
static struct numbers settled(int fd, uint64_t received) {
    struct numbers now = of(fd);
    for (int turn = 0; turn < 5000; turn++, now = of(fd)) {
        if (!now.unacked && !now.notsent_bytes && now.bytes_received >= received) break;
        usleep(1000);
    }
    return now;
}

static const char *any(uint64_t value) { return value ? "some" : "none"; }

static void tell(struct numbers now) {
    begin("state %d %d retransmits %d probes %d backoff %d", now.state, now.ca_state,
          now.retransmits, now.probes, now.backoff);
    more(" options %#x unacked %u sacked %u lost %u retrans %u", now.options, now.unacked,
         now.sacked, now.lost, now.retrans);
    finish(" fackets %u", now.fackets);
    begin("mss %u advertised %u path %u", now.snd_mss, now.advmss, now.pmtu);
    more(" rto %s rtt %s rttvar %s least %s", any(now.rto), any(now.rtt), any(now.rttvar),
         any(now.min_rtt));
    finish(" cwnd %s ssthresh %s", any(now.snd_cwnd), any(now.snd_ssthresh));
    /* A busy machine may make either side send something again. */
    begin("acked %lu received %lu sent as acked %d unsent %u", (long)now.bytes_acked,
          (long)now.bytes_received, now.total_retrans || now.bytes_sent == now.bytes_acked - 1,
          now.notsent_bytes);
    finish(" resent as counted %d ce %u rehash %u", !now.total_retrans == !now.bytes_retrans,
           now.delivered_ce, now.rehash);
    begin("pacing %s most %lx", any(now.pacing_rate), (long)now.max_pacing_rate);
    finish(" windows %s %s room %s %s", any(now.snd_wnd), any(now.rcv_wnd), any(now.rcv_space),
           any(now.rcv_ssthresh));
}

/* Amounts as they are at least: what is sent again, and what answers ride on, depends on the machine. */
static void exchange(void) {
    int fd = open_to('e');
    struct numbers now = settled(fd, 0);
    char byte;
    say("segments out %u in %u with data out %u in %u arrived %u", now.segs_out, now.segs_in,
        now.data_segs_out, now.data_segs_in, now.delivered);
    for (int i = 0; i < 10; i++) {
        write(fd, bytes, 1);
        recv(fd, &byte, 1, 0);
    }
    now = settled(fd, 10);
    begin("with data out %d in %d", now.data_segs_out >= 11, now.data_segs_in >= 10);
    more(" out %d in %d", now.segs_out > now.data_segs_out, now.segs_in > now.data_segs_in);
    more(" sent again as counted %d", now.data_segs_out == 11 + now.total_retrans);
    finish(" timeouts as told %d %d", !now.total_rto == !now.total_rto_recoveries,
           now.total_rto || !now.total_rto_time);
    close(fd);
}

static void beginning(void) {
    int fd = open_to('e');
    struct numbers now = settled(fd, 0);
    tell(now);
    say("acknowledges in %u", now.ato);
    close(fd);
}

static void bulk(void) {
    int fd = open_to('e');
    const size_t all = 8 << 20;
    for (size_t put = 0, got = 0; got < all;) {
        ssize_t sent = put < all ? send(fd, bytes, 65536, 0) : 0;
        put += sent > 0 ? sent : 0;
        ssize_t came = recv(fd, bytes, sizeof bytes, put < all ? MSG_DONTWAIT : 0);
        got += came > 0 ? came : 0;
    }
    struct numbers now = settled(fd, all);
    tell(now);
    say("acknowledges in %u delivery %s round trip %s", now.ato, any(now.delivery_rate),
        any(now.rcv_rtt));
    close(fd);
}

static void shut_window(void) {
    int fd = open_to('s');
    nonblocking(fd);
    struct numbers now = {0};
    /* The window grows for a while; the kernel counts in ticks. */
    for (int turn = 0; turn < 5000 && !(now.notsent_bytes && now.rwnd_limited); turn++) {
        while (send(fd, bytes, sizeof bytes, 0) > 0) {}
        usleep(1000);
        now = of(fd);
    }
    say("unsent %s limited by the window %s busy %s", any(now.notsent_bytes),
        any(now.rwnd_limited), any(now.busy_time));
    close(fd);
}

static void limited(void) {
    int fd = open_to('e');
    uint32_t rate = 5000000;
    setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
    write(fd, bytes, 1000);
    struct numbers now = settled(fd, 0);
    say("most %lu pacing within %d", (long)now.max_pacing_rate,
        now.pacing_rate && now.pacing_rate <= rate);
    close(fd);
}

/* What of the path the congestion control tells: struct tcp_bbr_info, or nothing. */
static void algorithms(void) {
    const char *names[] = {"cubic", "reno", "bbr"};
    for (int i = 0; i < 3; i++) {
        int fd = open_to('e');
        uint32_t info[8] = {0};
        socklen_t len = sizeof info, cut = 6;
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, names[i], strlen(names[i]));
        /* The kernel's knows nothing before something is acknowledged. */
        write(fd, bytes, 1);
        recv(fd, bytes, 1, 0);
        settled(fd, 1);
        getsockopt(fd, IPPROTO_TCP, TCP_CC_INFO, info, &len);
        begin("%s tells %u bytes gains %u %u", names[i], len, info[3], info[4]);
        finish(" round trip %s", any(info[2]));
        getsockopt(fd, IPPROTO_TCP, TCP_CC_INFO, info, &cut);
        say("as many as asked for %u", cut);
        close(fd);
    }
}

int main(int argc, char **argv) {
    const struct check checks[] = {
        {"beginning", beginning}, {"exchange", exchange}, {"bulk", bulk},
        {"shut window", shut_window}, {"limited", limited},
        {"algorithms", algorithms},
    };
    return run_checks(argc, argv, checks, sizeof checks / sizeof *checks);
}
