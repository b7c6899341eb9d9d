/* Injected messages of an endpoint whose completions are deliveries (FI_DELIVERY_COMPLETE): such a
   message is counted when the other program has it, and not before; it is in no queue, and what fails
   is counted as an error.

   inject serve        says its address, and receives late what was injected early
   inject send ADDRESS PORT */
#include <arpa/inet.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INJECTED = 1, NAME, SEEN, RECEIVE, PATIENCE_MS = 120000, ROUNDS = 50 };
static const size_t lengths[] = {0, 8, 128, 129, 4096};
enum { COUNT = sizeof lengths / sizeof *lengths };

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *vector;
static struct fid_cq *sent, *received;
static struct fid_cntr *counter;
static struct fid_ep *endpoint;

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "line %d: not %s\n", __LINE__, #condition);        \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

static void open_endpoint(int is_delivered)
{
    struct fi_info *hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup("outboard");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED;
    hints->addr_format = FI_SOCKADDR_IN;
    CHECK(!fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
    if (is_delivered)
        info->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
    struct fi_av_attr addresses = {.type = FI_AV_TABLE};
    struct fi_cntr_attr counts = {.events = FI_CNTR_EVENTS_COMP};
    CHECK(!fi_fabric(info->fabric_attr, &fabric, NULL));
    CHECK(!fi_domain(fabric, info, &domain, NULL));
    CHECK(!fi_av_open(domain, &addresses, &vector, NULL));
    CHECK(!fi_cq_open(domain, &queue, &sent, NULL));
    CHECK(!fi_cq_open(domain, &queue, &received, NULL));
    CHECK(!fi_cntr_open(domain, &counts, &counter, NULL));
    CHECK(!fi_endpoint(domain, info, &endpoint, NULL));
    CHECK(!fi_ep_bind(endpoint, &vector->fid, 0));
    CHECK(!fi_ep_bind(endpoint, &sent->fid, FI_SEND));
    CHECK(!fi_ep_bind(endpoint, &received->fid, FI_RECV));
    CHECK(!fi_ep_bind(endpoint, &counter->fid, FI_SEND));
    CHECK(!fi_enable(endpoint));
}

static void receive(int tag, void *room, size_t length)
{
    struct fi_cq_tagged_entry entry;
    CHECK(!fi_trecv(endpoint, room, length, NULL, FI_ADDR_UNSPEC, tag, 0, NULL));
    CHECK(fi_cq_sread(received, &entry, 1, NULL, PATIENCE_MS) == 1);
    CHECK((int)entry.tag == tag && entry.len == length);
}

static void send_now(fi_addr_t to, int tag, const void *bytes, size_t length)
{
    struct fi_cq_tagged_entry entry;
    CHECK(!fi_tsend(endpoint, bytes, length, NULL, to, tag, NULL));
    CHECK(fi_cq_sread(sent, &entry, 1, NULL, PATIENCE_MS) == 1);
}

static int serve(void)
{
    struct sockaddr_in own, other;
    size_t size = sizeof own;
    char text[INET_ADDRSTRLEN], room[4096];
    fi_addr_t to;
    open_endpoint(0);
    CHECK(!fi_getname(&endpoint->fid, &own, &size));
    inet_ntop(AF_INET, &own.sin_addr, text, sizeof text);
    printf("%s %d\n", text, ntohs(own.sin_port));
    fflush(stdout);
    /* Messages of one sender come in their order: by now those that were injected are here. */
    receive(NAME, &other, sizeof other);
    CHECK(fi_av_insert(vector, &other, 1, &to, 0, NULL) == 1);
    send_now(to, SEEN, NULL, 0);
    receive(RECEIVE, NULL, 0);
    for (int each = 0; each < COUNT; each++) {
        memset(room, 0, sizeof room);
        receive(INJECTED, room, lengths[each]);
        for (size_t place = 0; place < lengths[each]; place++)
            CHECK(room[place] == (char)(each + 1));
    }
    /* Stays until the other one has its counts. */
    receive(SEEN, NULL, 0);
    puts("right");
    return 0;
}

static int send_to(const char *address, int port)
{
    struct sockaddr_in own, peer[2];
    size_t size = sizeof own;
    char bytes[4096];
    fi_addr_t to[2];
    struct fi_cq_tagged_entry entry;
    open_endpoint(1);
    CHECK(!fi_getname(&endpoint->fid, &own, &size));
    memset(peer, 0, sizeof peer);
    peer[0].sin_family = AF_INET;
    peer[0].sin_port = htons(port);
    CHECK(inet_pton(AF_INET, address, &peer[0].sin_addr) == 1);
    peer[1] = peer[0];
    peer[1].sin_port = htons(1); /* nobody's */
    CHECK(fi_av_insert(vector, peer, 2, to, 0, NULL) == 2);
    for (int each = 0; each < COUNT; each++) {
        memset(bytes, each + 1, sizeof bytes);
        CHECK(!fi_tinject(endpoint, bytes, lengths[each], to[0], INJECTED));
        memset(bytes, 0xee, sizeof bytes);
    }
    /* The same endpoint's deliveries: the name is received at once, what was injected is not. */
    send_now(to[0], NAME, &own, sizeof own);
    receive(SEEN, NULL, 0);
    for (int round = 0; round < ROUNDS; round++)
        CHECK(fi_cq_read(sent, &entry, 1) == -FI_EAGAIN);
    CHECK(fi_cntr_read(counter) == 1);
    send_now(to[0], RECEIVE, NULL, 0);
    CHECK(!fi_cntr_wait(counter, COUNT + 2, PATIENCE_MS));
    CHECK(fi_cntr_read(counter) == COUNT + 2);
    CHECK(fi_cq_read(sent, &entry, 1) == -FI_EAGAIN);
    /* One that nobody can have. */
    CHECK(!fi_tinject(endpoint, bytes, 8, to[1], INJECTED));
    CHECK(fi_cntr_wait(counter, COUNT + 3, PATIENCE_MS) == -FI_EAVAIL);
    CHECK(fi_cntr_readerr(counter) == 1);
    CHECK(fi_cq_read(sent, &entry, 1) == -FI_EAGAIN);
    send_now(to[0], SEEN, NULL, 0);
    puts("right");
    return 0;
}

int main(int argc, char **argv)
{
    return argc > 3 ? send_to(argv[2], atoi(argv[3])) : serve();
}
