/* What cannot be right is a code with the cause, and leaves the communicator as it was. */
#define _POSIX_C_SOURCE 200809L
#include <unistd.h>

#include "check.h"

#define INVALID(call, text) FAILS(call, GRADSYNC_INVALID_ARGUMENT, text)

static gradsync_comm* comm;
static gradsync_work* work;
static float f[8];
static const size_t ones[2] = {1, 1}, huge[2] = {SIZE_MAX, SIZE_MAX};

static void null_pointers(void) {
  gradsync_comm* other;
  gradsync_dtype dtype;
  INVALID(gradsync_create(NULL, NULL), "gradsync_create: the address for the communicator is null");
  INVALID(gradsync_threads(2, NULL, NULL), "the address for the communicators is null");
  INVALID(gradsync_rank(NULL, &dtype), "gradsync_rank: the communicator is null");
  INVALID(gradsync_rank(comm, NULL), "the address for the rank is null");
  INVALID(gradsync_size(comm, NULL), "the address for the size is null");
  INVALID(gradsync_status(NULL), "the communicator is null");
  INVALID(gradsync_abort(NULL, NULL), "the communicator is null");
  INVALID(gradsync_describe(comm, 0, NULL, 5, NULL), "the address for the text is null");
  INVALID(gradsync_hosts(comm, NULL, 5), "the address for the hosts is null");
  INVALID(gradsync_get_counters(comm, NULL), "the address for the counters is null");
  INVALID(gradsync_split(comm, 0, 0, NULL), "the address for the communicator is null");
  INVALID(gradsync_split(NULL, 0, 0, &other), "gradsync_split: the communicator is null");
  INVALID(gradsync_group(comm, NULL, 2, &other), "the list of ranks is null");
  INVALID(gradsync_group(comm, NULL, 0, &other), "rank 0 calls it but is not listed");
  INVALID(gradsync_tune(NULL), "the communicator is null");
  INVALID(gradsync_allocate(comm, 8, NULL, NULL), "the address for the memory is null");
  INVALID(gradsync_dtype_named(NULL, &dtype), "gradsync_dtype_named: the name is null");
  INVALID(gradsync_dtype_named("f32", NULL), "the address for the number is null");
  INVALID(gradsync_work_done(NULL, &dtype), "the work is null");
  INVALID(gradsync_work_wait(NULL), "the work is null");
  INVALID(gradsync_work_status(NULL), "the work is null");
  INVALID(gradsync_all_reduce(comm, NULL, f, 8, GRADSYNC_F32, GRADSYNC_SUM, NULL),
          "the input is null but holds 8 elements");
  INVALID(gradsync_all_reduce(comm, f, NULL, 8, GRADSYNC_F32, GRADSYNC_SUM, NULL),
          "the output is null but holds 8 elements");
  INVALID(gradsync_all_gather_counts(comm, f, f, NULL, GRADSYNC_F32, NULL), "counts is null");
  INVALID(gradsync_all_to_all_counts(comm, f, f, NULL, ones, GRADSYNC_F32, NULL), "send_counts is null");
  INVALID(gradsync_all_to_all_counts(comm, f, f, ones, NULL, GRADSYNC_F32, NULL), "recv_counts is null");
  INVALID(gradsync_all_reduce_async(comm, f, f, 1, GRADSYNC_F32, GRADSYNC_SUM, NULL, NULL),
          "the address for the work is null");
  INVALID(gradsync_run(comm, NULL), "the call is null");
  INVALID(gradsync_barrier(NULL, NULL), "gradsync_barrier: the communicator is null");
}

static void wrong_numbers(void) {
  gradsync_call_options options = GRADSYNC_CALL_OPTIONS_INIT;
  gradsync_transport transport;
  int done = 0;
  INVALID(gradsync_all_reduce(comm, f, f, 1, 11, GRADSYNC_SUM, NULL),
          "element type number 11 is unknown, numbers from 0 are f16, bf16");
  INVALID(gradsync_all_reduce(comm, f, f, 1, 256, GRADSYNC_SUM, NULL), "element type number 256");
  INVALID(gradsync_all_reduce(comm, f, f, 1, -1, GRADSYNC_SUM, NULL), "element type number -1");
  INVALID(gradsync_all_reduce(comm, f, f, 1, GRADSYNC_F32, 8, NULL), "operator number 8 is unknown");
  FAILS(gradsync_all_reduce(comm, f, f, 1, GRADSYNC_F32, GRADSYNC_BIT_XOR, NULL), GRADSYNC_UNSUPPORTED,
        "all_reduce: bit_xor of f32 is not defined");
  INVALID(gradsync_broadcast(comm, f, 1, GRADSYNC_F32, 2, NULL), "the root is rank 2, but the world has ranks 0 to 1");
  INVALID(gradsync_reduce(comm, f, f, 1, GRADSYNC_F32, GRADSYNC_SUM, -1, NULL), "the root is rank -1");
  INVALID(gradsync_send(comm, f, 1, GRADSYNC_F32, 0, NULL), "the peer is rank 0 itself");
  INVALID(gradsync_recv(comm, f, 1, GRADSYNC_F32, 7, NULL, NULL), "the peer is rank 7");
  INVALID(gradsync_all_reduce(comm, f, f, SIZE_MAX, GRADSYNC_F32, GRADSYNC_SUM, NULL), "beyond the limit");
  INVALID(gradsync_all_gather(comm, f, f, SIZE_MAX / 2 + 1, GRADSYNC_F32, NULL), "beyond the limit");
  INVALID(gradsync_reduce_scatter_counts(comm, f, f, huge, GRADSYNC_F32, GRADSYNC_SUM, NULL), "beyond the limit");
  INVALID(gradsync_all_to_all_counts(comm, f, f, ones, huge, GRADSYNC_F32, NULL), "beyond the limit");
  INVALID(gradsync_all_reduce(comm, f, f + 1, 4, GRADSYNC_F32, GRADSYNC_SUM, NULL), "overlap");
  INVALID(gradsync_describe(comm, 2, NULL, 0, NULL), "rank 2 of 2 ranks");
  INVALID(gradsync_hosts(comm, (uint32_t*)(void*)f, 1), "there is room for 1 hosts, expected 2 or more");
  INVALID(gradsync_dtype_named("f33", &transport), "'f33' is unknown, known are f16");
  INVALID(gradsync_transport_named("pigeon", &transport), "'pigeon' is unknown, known are auto");
  options.algorithm = 99;
  INVALID(gradsync_barrier(comm, &options), "algorithm number 99");
  options.algorithm = GRADSYNC_ALGORITHM_AUTO;
  options.segments = 65;
  INVALID(gradsync_barrier(comm, &options), "65 segments");
  options.segments = 0;
  options.timeout_ns = -5;
  INVALID(gradsync_barrier(comm, &options), "the timeout is");
  OK(gradsync_recv_async(comm, f, 1, GRADSYNC_F32, 1, NULL, &work));
  INVALID(gradsync_work_wait_for(work, -1, &done), "the duration is -1 ns");
  OK(gradsync_work_free(work));
}

static void struct_sizes(void) {
  gradsync_call_options options = GRADSYNC_CALL_OPTIONS_INIT;
  struct {
    gradsync_call_options known;
    uint64_t later;
  } newer;
  gradsync_counters counters = GRADSYNC_COUNTERS_INIT;
  options.struct_size = 0;
  INVALID(gradsync_barrier(comm, &options), "gradsync_call_options.struct_size is 0, expected 32");
  options.struct_size = 9;
  INVALID(gradsync_barrier(comm, &options), "struct_size is 9");
  counters.struct_size = 0;
  INVALID(gradsync_get_counters(comm, &counters), "gradsync_counters.struct_size is 0");
  /* An older caller's rest has its initial value: here a timeout that would be refused. */
  options.struct_size = 16;
  options.timeout_ns = -5;
  OK(gradsync_recv_async(comm, f, 1, GRADSYNC_F32, 1, &options, &work));
  OK(gradsync_work_free(work));
  /* A newer caller is understood as long as it asks for nothing new. */
  memset(&newer, 0, sizeof newer);
  newer.known.struct_size = sizeof newer;
  OK(gradsync_recv_async(comm, f, 1, GRADSYNC_F32, 1, &newer.known, &work));
  OK(gradsync_work_free(work));
  newer.later = 1;
  FAILS(gradsync_barrier(comm, &newer.known), GRADSYNC_UNSUPPORTED,
        "gradsync_call_options has 40 bytes, and this version, 0.");
  options.struct_size = sizeof options;
  options.timeout_ns = 0;
  options.flags = 3;
  FAILS(gradsync_barrier(comm, &options), GRADSYNC_UNSUPPORTED, "flags is 0x3, known is GRADSYNC_MOVED_BY_WAITER, 0x1");
}

static void joining(void) {
  gradsync_options options = GRADSYNC_OPTIONS_INIT;
  gradsync_comm* other = NULL;
  INVALID(gradsync_threads(0, NULL, &other), "a world of 0 threads");
  options.timeout_ns = -1;
  INVALID(gradsync_threads(1, &options, &other), "timeout is");
  options.timeout_ns = 0;
  options.transport = 9;
  INVALID(gradsync_create(&options, &other), "transport number 9");
  options.transport = GRADSYNC_TRANSPORT_LOOPBACK;
  options.rank = 0;
  options.size = 1;
  options.rendezvous = "file:///nonexistent";
  INVALID(gradsync_create(&options, &other), "the transport is loopback");
  options.transport = GRADSYNC_TRANSPORT_AUTO;
  options.rendezvous = "carrier-pigeon://";
  INVALID(gradsync_create(&options, &other), "carrier-pigeon://");
  CHECK(setenv("GRADSYNC_RANK", "seven", 1) == 0);
  INVALID(gradsync_create(NULL, &other), "GRADSYNC_RANK");
  CHECK(unsetenv("GRADSYNC_RANK") == 0);
  CHECK(other == NULL);
}

static void names(void) {
  gradsync_dtype dtype = -1;
  gradsync_op op = -1;
  gradsync_algorithm algorithm = -1;
  OK(gradsync_dtype_named("bf16", &dtype));
  OK(gradsync_op_named("bit_xor", &op));
  OK(gradsync_algorithm_named("ring", &algorithm));
  CHECK(dtype == GRADSYNC_BF16 && op == GRADSYNC_BIT_XOR && algorithm == GRADSYNC_ALGORITHM_RING);
  CHECK(strcmp(gradsync_dtype_name(GRADSYNC_BOOL), "bool") == 0 && strcmp(gradsync_dtype_name(256), "unknown") == 0);
  CHECK(strcmp(gradsync_op_name(GRADSYNC_AVG), "avg") == 0 && strcmp(gradsync_op_name(-1), "unknown") == 0);
  CHECK(strcmp(gradsync_collective_name(GRADSYNC_RECV), "recv") == 0);
  CHECK(strcmp(gradsync_algorithm_name(GRADSYNC_ALGORITHM_TREE), "tree") == 0);
  CHECK(strcmp(gradsync_transport_name(GRADSYNC_TRANSPORT_SHM), "shm") == 0);
  CHECK(strcmp(gradsync_code_name(GRADSYNC_PEER_LOST), "peer_lost") == 0);
  CHECK(gradsync_dtype_bytes(GRADSYNC_F64) == 8 && gradsync_dtype_bytes(11) == 0 && gradsync_dtype_bytes(-1) == 0);
  CHECK(gradsync_supports(GRADSYNC_I8, GRADSYNC_BIT_OR) == 1 && gradsync_supports(GRADSYNC_F16, GRADSYNC_BIT_OR) == 0);
  CHECK(gradsync_supports(256, GRADSYNC_SUM) == 0);
  CHECK(gradsync_version()[0] != '\0');
}

int main(void) {
  gradsync_comm* comms[2];
  gradsync_comm* self = NULL;
  int size = 0;
  alarm(100);
  CHECK(gradsync_error_code() == GRADSYNC_OK && gradsync_error_peer() == -1 && gradsync_error_message()[0] == '\0');
  OK(gradsync_threads(2, NULL, comms));
  comm = comms[0];
  null_pointers();
  wrong_numbers();
  struct_sizes();
  joining();
  names();
  OK(gradsync_status(comm));
  OK(gradsync_destroy(comms[0]));
  OK(gradsync_destroy(comms[1]));
  OK(gradsync_create(NULL, &self)); /* nothing in the environment: a world of one */
  OK(gradsync_size(self, &size));
  CHECK(size == 1);
  OK(gradsync_destroy(self));
  puts("ok");
  return 0;
}
