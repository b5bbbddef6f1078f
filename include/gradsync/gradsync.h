/* gradsync for C, and for every language that can call C.
 *
 *   gradsync_comm* comm;
 *   if (gradsync_create(NULL, &comm) != GRADSYNC_OK) {          // rank, size and rendezvous from the environment
 *     fprintf(stderr, "%s\n", gradsync_error_message());
 *     return 1;
 *   }
 *   gradsync_all_reduce(comm, gradients, gradients, count, GRADSYNC_F32, GRADSYNC_AVG, NULL);
 *   gradsync_destroy(comm);
 *
 * What the calls mean is said in communicator.hpp; here is how C says them.
 *
 * Codes. Every function that can fail returns a gradsync_code. What went wrong, and with which peer, is kept for the thread
 * that called until its next failure: gradsync_error_message(), gradsync_error_peer(). Nothing is thrown across this border,
 * and outputs are written only by a call that returns GRADSYNC_OK (unless it says otherwise).
 *
 * Handles. A handle is checked at every use: after gradsync_destroy or *_free it is GRADSYNC_CLOSED, never a crash; so is, in
 * a forked child, a handle of its parent. What is no handle at all is GRADSYNC_INVALID_ARGUMENT. Handles may be used from any
 * thread; a call under way keeps what it uses, also when another thread destroys the handle.
 *
 * Structs. The first member is the size that the caller's compiler knew; set it with the *_INIT macro. The library reads and
 * writes no further, so a program works with a newer library; what it does not know has its default. A larger struct than this
 * library knows is read as far as known if the rest is zero, and refused with GRADSYNC_UNSUPPORTED otherwise; so is a
 * reserved member that is not 0.
 *
 * Memory. Buffers are borrowed until the call returns, or until the work of an asynchronous call is done. Counts are in
 * elements, and a buffer of no elements may be NULL.
 */
#ifndef GRADSYNC_GRADSYNC_H
#define GRADSYNC_GRADSYNC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GRADSYNC_VERSION_MAJOR 0
#define GRADSYNC_VERSION_MINOR 1
#define GRADSYNC_VERSION_PATCH 0

/* Of the library that is loaded: "0.1.0". Equal major and minor versions fit together. */
const char* gradsync_version(void);

/* Enumerations ---------------------------------------------------------------------------------------------------- */
/* Of fixed width, so that a wrong number is an error and not undefined. */

typedef int32_t gradsync_code;
enum {
  GRADSYNC_OK,
  GRADSYNC_INVALID_ARGUMENT, /* the arguments cannot be right; nothing was done */
  GRADSYNC_MISMATCH,         /* ranks called different things */
  GRADSYNC_TIMEOUT,          /* a deadline passed */
  GRADSYNC_PEER_LOST,        /* a peer's process or connection is gone */
  GRADSYNC_ABORTED,          /* gradsync_abort, here or on a peer */
  GRADSYNC_OUT_OF_MEMORY,
  GRADSYNC_OUT_OF_RANGE,
  GRADSYNC_UNSUPPORTED, /* known, but not available for this combination */
  GRADSYNC_PROTOCOL,    /* bytes that are not gradsync's, or of another version */
  GRADSYNC_UNAVAILABLE, /* a resource of the system could not be had */
  GRADSYNC_CLOSED,      /* use after gradsync_destroy or *_free */
  GRADSYNC_INTERNAL,    /* a bug in gradsync */
  GRADSYNC_NOT_FINITE
};

typedef int32_t gradsync_dtype;
enum {
  GRADSYNC_F16,
  GRADSYNC_BF16,
  GRADSYNC_F32,
  GRADSYNC_F64,
  GRADSYNC_I8,
  GRADSYNC_U8,
  GRADSYNC_I32,
  GRADSYNC_U32,
  GRADSYNC_I64,
  GRADSYNC_U64,
  GRADSYNC_BOOL /* one byte, 0 or 1 */
};

typedef int32_t gradsync_op;
enum {
  GRADSYNC_SUM,
  GRADSYNC_AVG,
  GRADSYNC_PRODUCT,
  GRADSYNC_MIN,
  GRADSYNC_MAX,
  GRADSYNC_BIT_AND,
  GRADSYNC_BIT_OR,
  GRADSYNC_BIT_XOR
};

typedef int32_t gradsync_collective;
enum {
  GRADSYNC_ALL_REDUCE,
  GRADSYNC_REDUCE_SCATTER,
  GRADSYNC_ALL_GATHER,
  GRADSYNC_BROADCAST,
  GRADSYNC_REDUCE,
  GRADSYNC_GATHER,
  GRADSYNC_SCATTER,
  GRADSYNC_ALL_TO_ALL,
  GRADSYNC_BARRIER,
  GRADSYNC_SEND,
  GRADSYNC_RECV
};

typedef int32_t gradsync_algorithm;
enum {
  GRADSYNC_ALGORITHM_AUTO,
  GRADSYNC_ALGORITHM_FLAT,
  GRADSYNC_ALGORITHM_RING,
  GRADSYNC_ALGORITHM_RECURSIVE_DOUBLING,
  GRADSYNC_ALGORITHM_HALVING_DOUBLING,
  GRADSYNC_ALGORITHM_CIRCULANT,
  GRADSYNC_ALGORITHM_ONE_SHOT,
  GRADSYNC_ALGORITHM_TWO_SHOT,
  GRADSYNC_ALGORITHM_TREE,
  GRADSYNC_ALGORITHM_DOUBLE_TREE,
  GRADSYNC_ALGORITHM_HIERARCHICAL,
  GRADSYNC_ALGORITHM_DIRECT
};

typedef int32_t gradsync_transport;
enum { GRADSYNC_TRANSPORT_AUTO, GRADSYNC_TRANSPORT_LOOPBACK, GRADSYNC_TRANSPORT_SHM, GRADSYNC_TRANSPORT_TCP };

/* "f16", "all_reduce", …; "unknown" for another number. Static strings. */
const char* gradsync_code_name(gradsync_code code);
const char* gradsync_dtype_name(gradsync_dtype dtype);
const char* gradsync_op_name(gradsync_op op);
const char* gradsync_collective_name(gradsync_collective collective);
const char* gradsync_algorithm_name(gradsync_algorithm algorithm);
const char* gradsync_transport_name(gradsync_transport transport);
/* The number of that name. The message of a failure lists the names there are. */
gradsync_code gradsync_dtype_named(const char* name, gradsync_dtype* dtype);
gradsync_code gradsync_op_named(const char* name, gradsync_op* op);
gradsync_code gradsync_algorithm_named(const char* name, gradsync_algorithm* algorithm);
gradsync_code gradsync_transport_named(const char* name, gradsync_transport* transport);
/* Bytes of an element; 0 for another number. */
size_t gradsync_dtype_bytes(gradsync_dtype dtype);
/* 1 if the operator is defined for the type, else 0. */
int gradsync_supports(gradsync_dtype dtype, gradsync_op op);

/* The last failure in this thread --------------------------------------------------------------------------------- */

gradsync_code gradsync_error_code(void);  /* GRADSYNC_OK if there was none */
const char* gradsync_error_message(void); /* never NULL; valid until this thread's next failure */
int gradsync_error_peer(void);            /* the rank to blame or waited for; -1 if none */

/* A communicator -------------------------------------------------------------------------------------------------- */

typedef struct gradsync_comm gradsync_comm;

/* What a get of a store hands over. */
typedef struct gradsync_bytes gradsync_bytes;
gradsync_code gradsync_bytes_assign(gradsync_bytes* bytes, const void* data, size_t count);

/* A store of the caller's own where the ranks meet (see store.hpp, which says what each call means). Called by the thread that
 * is in gradsync_create, one at a time. Each returns GRADSYNC_OK, GRADSYNC_TIMEOUT, or another code if it cannot. */
typedef struct gradsync_store {
  size_t struct_size;
  void* context; /* the first argument of every call */
  gradsync_code (*set)(void* context, const char* key, const void* value, size_t bytes);
  gradsync_code (*get)(void* context, const char* key, int64_t timeout_ns, gradsync_bytes* value);
  gradsync_code (*add)(void* context, const char* key, int64_t amount, int64_t* sum);
  gradsync_code (*remove)(void* context, const char* key); /* may be NULL */
} gradsync_store;

/* See options.hpp. What is left at its initial value is taken from the environment if `environment` is not 0; beside a store
 * only GRADSYNC_INTERFACE and GRADSYNC_OPTIONS are. */
typedef struct gradsync_options {
  size_t struct_size;
  int64_t rank, size;       /* -1: not given */
  const char* rendezvous;   /* NULL: not given */
  const char* interfaces;   /* NULL: not given */
  const char* host;         /* NULL: not given */
  int64_t timeout_ns;       /* of every operation; 0: 300 s */
  int64_t start_timeout_ns; /* of joining; 0: 60 s */
  uint64_t fault_seed;
  const gradsync_store* store; /* NULL: none; with it, rank and size are given and rendezvous is not */
  gradsync_transport transport;
  uint32_t lanes; /* 0: one */
  int32_t environment;
  int32_t reserved; /* 0 */
} gradsync_options;
#define GRADSYNC_OPTIONS_INIT \
  { sizeof(gradsync_options), -1, -1, NULL, NULL, NULL, 0, 0, 0, NULL, GRADSYNC_TRANSPORT_AUTO, 0, 1, 0 }

/* Joins the group. Blocks until all ranks are there. NULL options: the environment says it all. */
gradsync_code gradsync_create(const gradsync_options* options, gradsync_comm** comm);
/* `size` communicators of one group inside this process, one a rank, for threads; comms[r] is rank r. Of the options only
 * timeout_ns and start_timeout_ns count; NULL: defaults. */
gradsync_code gradsync_threads(uint32_t size, const gradsync_options* options, gradsync_comm** comms);
/* Ends what is under way; local, below a second. The handle is not valid any more. NULL: does nothing, as free(). */
gradsync_code gradsync_destroy(gradsync_comm* comm);
/* Ends every operation under way and every later call, here and on the peers. `why` may be NULL. */
gradsync_code gradsync_abort(gradsync_comm* comm, const char* why);

gradsync_code gradsync_rank(gradsync_comm* comm, int* rank);
gradsync_code gradsync_size(gradsync_comm* comm, int* size);
/* GRADSYNC_OK, or why this communicator has failed. */
gradsync_code gradsync_status(gradsync_comm* comm);
/* "rank 3 (host b, 192.0.2.7:4711)", cut to `capacity` bytes with the final zero. `length`, unless NULL, is that of the whole
 * text, without the zero. `text` may be NULL if capacity is 0. */
gradsync_code gradsync_describe(gradsync_comm* comm, int rank, char* text, size_t capacity, size_t* length);
/* Host number of each rank, numbered by first appearance. `capacity`: how many `hosts` holds, at least the size. */
gradsync_code gradsync_hosts(gradsync_comm* comm, uint32_t* hosts, size_t capacity);

typedef struct gradsync_counters {
  size_t struct_size;
  uint64_t messages_sent, bytes_sent;
  uint64_t messages_received, bytes_received;
  uint64_t elements_reduced;
  uint64_t operations;
  uint64_t staging_bytes_peak;
} gradsync_counters;
#define GRADSYNC_COUNTERS_INIT \
  { sizeof(gradsync_counters), 0, 0, 0, 0, 0, 0, 0 }
gradsync_code gradsync_get_counters(gradsync_comm* comm, gradsync_counters* counters);

/* Ranks of equal colour form a new communicator, ordered by key, then by rank. A negative colour joins none: *part is NULL.
 * Collective. */
gradsync_code gradsync_split(gradsync_comm* comm, int color, int key, gradsync_comm** part);
/* A communicator of these ranks, in this order; only they call it. */
gradsync_code gradsync_group(gradsync_comm* comm, const int* ranks, size_t count, gradsync_comm** part);
/* Measures links and reductions, and chooses algorithms by that from then on. Collective. */
gradsync_code gradsync_tune(gradsync_comm* comm);

/* Registered memory: zeroed, page-aligned, read by the ranks of the host where it lies. Valid until freed, and until the calls
 * under way on it are done; it may outlive the communicator. */
typedef struct gradsync_memory gradsync_memory;
gradsync_code gradsync_allocate(gradsync_comm* comm, size_t bytes, gradsync_memory** memory, void** data);
gradsync_code gradsync_memory_free(gradsync_memory* memory); /* NULL: does nothing */

/* Operations ------------------------------------------------------------------------------------------------------ */

/* What a call may ask for; NULL where a call takes it: all defaults. All ranks pass the same algorithm and segments. */
typedef struct gradsync_call_options {
  size_t struct_size;
  gradsync_algorithm algorithm;
  uint32_t segments;  /* of tree algorithms; 0: chosen */
  int64_t timeout_ns; /* instead of the communicator's; 0: that one */
  uint32_t tag;       /* send and recv: messages of one pair and tag match in order; others do not hold them up */
  uint32_t flags;     /* GRADSYNC_MOVED_BY_WAITER or 0 */
} gradsync_call_options;
/* Of asynchronous calls: only threads that wait for it move it on, without the progress thread, which costs a hand-over. For
 * callers that will wait at once, in slices of their own. */
#define GRADSYNC_MOVED_BY_WAITER 1u
#define GRADSYNC_CALL_OPTIONS_INIT \
  { sizeof(gradsync_call_options), GRADSYNC_ALGORITHM_AUTO, 0, 0, 0, 0 }

#define GRADSYNC_ANY_RANK (-1)

/* An operation under way. */
typedef struct gradsync_work gradsync_work;
gradsync_code gradsync_work_done(gradsync_work* work, int* done); /* finished, well or not; never blocks */
/* Waits until it is finished, which its deadline bounds, and returns how. */
gradsync_code gradsync_work_wait(gradsync_work* work);
/* Waits at most so long; *done says whether it is finished, gradsync_work_status how. */
gradsync_code gradsync_work_wait_for(gradsync_work* work, int64_t duration_ns, int* done);
gradsync_code gradsync_work_status(gradsync_work* work); /* GRADSYNC_OK while under way */
gradsync_code gradsync_work_sequence(gradsync_work* work, uint64_t* sequence);
/* The rank that a receive got its message from; -1 while under way and of anything else. */
gradsync_code gradsync_work_source(gradsync_work* work, int* source);
/* When it finished, on CLOCK_MONOTONIC; 0 while it is under way. */
gradsync_code gradsync_work_completed_at(gradsync_work* work, int64_t* ns);
/* Gives the handle back; what is under way goes on, and its buffers must live until then. NULL: does nothing. */
gradsync_code gradsync_work_free(gradsync_work* work);

/* Each operation comes in two forms: the first blocks, *_async returns at once with a work in *work (to be freed).
 *
 * `count` is what one rank contributes, or for reduce_scatter and scatter what one rank gets: the side that holds a block for
 * each rank has size * count elements. The *_counts forms take `counts[size]`, the elements of each rank's block, equal on all
 * ranks. In place where communicator.hpp says so. */
gradsync_code gradsync_all_reduce(gradsync_comm* comm, const void* input, void* output, size_t count,
                                  gradsync_dtype dtype, gradsync_op op, const gradsync_call_options* options);
gradsync_code gradsync_all_reduce_async(gradsync_comm* comm, const void* input, void* output, size_t count,
                                        gradsync_dtype dtype, gradsync_op op, const gradsync_call_options* options,
                                        gradsync_work** work);
gradsync_code gradsync_reduce_scatter(gradsync_comm* comm, const void* input, void* output, size_t count,
                                      gradsync_dtype dtype, gradsync_op op, const gradsync_call_options* options);
gradsync_code gradsync_reduce_scatter_async(gradsync_comm* comm, const void* input, void* output, size_t count,
                                            gradsync_dtype dtype, gradsync_op op, const gradsync_call_options* options,
                                            gradsync_work** work);
gradsync_code gradsync_reduce_scatter_counts(gradsync_comm* comm, const void* input, void* output, const size_t* counts,
                                             gradsync_dtype dtype, gradsync_op op,
                                             const gradsync_call_options* options);
gradsync_code gradsync_reduce_scatter_counts_async(gradsync_comm* comm, const void* input, void* output,
                                                   const size_t* counts, gradsync_dtype dtype, gradsync_op op,
                                                   const gradsync_call_options* options, gradsync_work** work);
gradsync_code gradsync_all_gather(gradsync_comm* comm, const void* input, void* output, size_t count,
                                  gradsync_dtype dtype, const gradsync_call_options* options);
gradsync_code gradsync_all_gather_async(gradsync_comm* comm, const void* input, void* output, size_t count,
                                        gradsync_dtype dtype, const gradsync_call_options* options,
                                        gradsync_work** work);
gradsync_code gradsync_all_gather_counts(gradsync_comm* comm, const void* input, void* output, const size_t* counts,
                                         gradsync_dtype dtype, const gradsync_call_options* options);
gradsync_code gradsync_all_gather_counts_async(gradsync_comm* comm, const void* input, void* output,
                                               const size_t* counts, gradsync_dtype dtype,
                                               const gradsync_call_options* options, gradsync_work** work);
gradsync_code gradsync_broadcast(gradsync_comm* comm, void* in_out, size_t count, gradsync_dtype dtype, int root,
                                 const gradsync_call_options* options);
gradsync_code gradsync_broadcast_async(gradsync_comm* comm, void* in_out, size_t count, gradsync_dtype dtype, int root,
                                       const gradsync_call_options* options, gradsync_work** work);
gradsync_code gradsync_reduce(gradsync_comm* comm, const void* input, void* output, size_t count, gradsync_dtype dtype,
                              gradsync_op op, int root, const gradsync_call_options* options);
gradsync_code gradsync_reduce_async(gradsync_comm* comm, const void* input, void* output, size_t count,
                                    gradsync_dtype dtype, gradsync_op op, int root,
                                    const gradsync_call_options* options, gradsync_work** work);
gradsync_code gradsync_gather(gradsync_comm* comm, const void* input, void* output, size_t count, gradsync_dtype dtype,
                              int root, const gradsync_call_options* options);
gradsync_code gradsync_gather_async(gradsync_comm* comm, const void* input, void* output, size_t count,
                                    gradsync_dtype dtype, int root, const gradsync_call_options* options,
                                    gradsync_work** work);
gradsync_code gradsync_gather_counts(gradsync_comm* comm, const void* input, void* output, const size_t* counts,
                                     gradsync_dtype dtype, int root, const gradsync_call_options* options);
gradsync_code gradsync_gather_counts_async(gradsync_comm* comm, const void* input, void* output, const size_t* counts,
                                           gradsync_dtype dtype, int root, const gradsync_call_options* options,
                                           gradsync_work** work);
gradsync_code gradsync_scatter(gradsync_comm* comm, const void* input, void* output, size_t count, gradsync_dtype dtype,
                               int root, const gradsync_call_options* options);
gradsync_code gradsync_scatter_async(gradsync_comm* comm, const void* input, void* output, size_t count,
                                     gradsync_dtype dtype, int root, const gradsync_call_options* options,
                                     gradsync_work** work);
gradsync_code gradsync_scatter_counts(gradsync_comm* comm, const void* input, void* output, const size_t* counts,
                                      gradsync_dtype dtype, int root, const gradsync_call_options* options);
gradsync_code gradsync_scatter_counts_async(gradsync_comm* comm, const void* input, void* output, const size_t* counts,
                                            gradsync_dtype dtype, int root, const gradsync_call_options* options,
                                            gradsync_work** work);
/* `count`: of each of the size blocks. */
gradsync_code gradsync_all_to_all(gradsync_comm* comm, const void* input, void* output, size_t count,
                                  gradsync_dtype dtype, const gradsync_call_options* options);
gradsync_code gradsync_all_to_all_async(gradsync_comm* comm, const void* input, void* output, size_t count,
                                        gradsync_dtype dtype, const gradsync_call_options* options,
                                        gradsync_work** work);
gradsync_code gradsync_all_to_all_counts(gradsync_comm* comm, const void* input, void* output,
                                         const size_t* send_counts, const size_t* recv_counts, gradsync_dtype dtype,
                                         const gradsync_call_options* options);
gradsync_code gradsync_all_to_all_counts_async(gradsync_comm* comm, const void* input, void* output,
                                               const size_t* send_counts, const size_t* recv_counts,
                                               gradsync_dtype dtype, const gradsync_call_options* options,
                                               gradsync_work** work);
gradsync_code gradsync_barrier(gradsync_comm* comm, const gradsync_call_options* options);
gradsync_code gradsync_barrier_async(gradsync_comm* comm, const gradsync_call_options* options, gradsync_work** work);
gradsync_code gradsync_send(gradsync_comm* comm, const void* input, size_t count, gradsync_dtype dtype, int to,
                            const gradsync_call_options* options);
gradsync_code gradsync_send_async(gradsync_comm* comm, const void* input, size_t count, gradsync_dtype dtype, int to,
                                  const gradsync_call_options* options, gradsync_work** work);
/* `from`: a rank, or GRADSYNC_ANY_RANK. *source, unless NULL, becomes the rank that the message came from. */
gradsync_code gradsync_recv(gradsync_comm* comm, void* output, size_t count, gradsync_dtype dtype, int from,
                            int* source, const gradsync_call_options* options);
gradsync_code gradsync_recv_async(gradsync_comm* comm, void* output, size_t count, gradsync_dtype dtype, int from,
                                  const gradsync_call_options* options, gradsync_work** work);

/* The same as a value, for bindings, whose arrays know their lengths: these are checked, not derived. */
typedef struct gradsync_view {
  void* data; /* an input is never written */
  size_t count;
  gradsync_dtype dtype;
  int32_t reserved; /* 0 */
} gradsync_view;
typedef struct gradsync_call {
  size_t struct_size;
  gradsync_collective collective;
  gradsync_op op;
  int32_t root;                /* send and recv: the peer */
  uint32_t counts_length;      /* of counts and recv_counts; 0: equal blocks */
  gradsync_view input, output; /* broadcast: in_out is the output, on the root too */
  const size_t* counts;        /* blocks; all_to_all: what is sent to each rank */
  const size_t* recv_counts;   /* all_to_all only */
  const gradsync_call_options* options;
} gradsync_call;
gradsync_code gradsync_run(gradsync_comm* comm, const gradsync_call* call);
gradsync_code gradsync_start(gradsync_comm* comm, const gradsync_call* call, gradsync_work** work);

#ifdef __cplusplus
}
#endif
#endif
