/* Every operation, blocking and asynchronous, on 1 to 5 ranks. Values are small integers: sums are exact in every type. */
#include "ranks.h"

enum { BLOCK = 7, BLOCKS = BLOCK * RANKS_MAX };

/* Element i of rank r's contribution. */
static int64_t given(int r, size_t i) { return 100 * (r + 1) + (int64_t)i; }
static int64_t given_by_all(int size, size_t i) {
  int64_t sum = 0;
  int r;
  for (r = 0; r < size; ++r) sum += given(r, i);
  return sum;
}
static void fill(int64_t* values, int r, size_t count) {
  size_t i;
  for (i = 0; i < count; ++i) values[i] = given(r, i);
}
static void finish(gradsync_work* work, uint64_t* sequence) {
  int done = 0;
  uint64_t now = 0;
  int64_t at = 0;
  OK(gradsync_work_wait(work));
  OK(gradsync_work_done(work, &done));
  CHECK(done == 1);
  done = 0;
  OK(gradsync_work_wait_for(work, 0, &done));
  CHECK(done == 1);
  OK(gradsync_work_status(work));
  OK(gradsync_work_completed_at(work, &at));
  CHECK(at > 0);
  OK(gradsync_work_sequence(work, &now));
  CHECK(now > *sequence);
  *sequence = now;
  OK(gradsync_work_free(work));
}

/* Runs both forms of a call in turn; what follows is checked after each. */
#define TWICE(call, ...)                                \
  for (form = 0; form < 2; ++form) {                    \
    memset(out, 0x5a, sizeof out);                      \
    if (form == 0) {                                    \
      OK(call(self->comm, __VA_ARGS__));                \
    } else {                                            \
      gradsync_work* work = NULL;                       \
      OK(call##_async(self->comm, __VA_ARGS__, &work)); \
      finish(work, &sequence);                          \
    }
#define END_TWICE }

static void* reductions(void* argument) {
  const rank_of_world* self = argument;
  const size_t me = (size_t)self->rank, n = (size_t)self->size;
  int64_t in[BLOCKS], out[BLOCKS];
  size_t counts[RANKS_MAX], i, at = 0;
  uint64_t sequence = 0;
  int form;
  fill(in, self->rank, BLOCKS);

  TWICE(gradsync_all_reduce, in, out, BLOCK, GRADSYNC_I64, GRADSYNC_SUM, NULL)
  for (i = 0; i < BLOCK; ++i) CHECK(out[i] == given_by_all(self->size, i));
  END_TWICE
  TWICE(gradsync_reduce_scatter, in, out, BLOCK, GRADSYNC_I64, GRADSYNC_MAX, NULL)
  for (i = 0; i < BLOCK; ++i) CHECK(out[i] == given(self->size - 1, me * BLOCK + i));
  END_TWICE
  for (i = 0; i < n; ++i) counts[i] = i % 3; /* some of nothing */
  for (i = 0; i < me; ++i) at += counts[i];
  TWICE(gradsync_reduce_scatter_counts, in, out, counts, GRADSYNC_I64, GRADSYNC_SUM, NULL)
  for (i = 0; i < counts[me]; ++i) CHECK(out[i] == given_by_all(self->size, at + i));
  END_TWICE
  TWICE(gradsync_reduce, in, out, BLOCK, GRADSYNC_I64, GRADSYNC_MIN, self->size - 1, NULL)
  if (self->rank == self->size - 1)
    for (i = 0; i < BLOCK; ++i) CHECK(out[i] == given(0, i));
  END_TWICE
  return NULL;
}

static void* copies(void* argument) {
  const rank_of_world* self = argument;
  const size_t me = (size_t)self->rank, n = (size_t)self->size;
  const int root = self->size / 2;
  int64_t in[BLOCKS], out[BLOCKS];
  size_t counts[RANKS_MAX], i, r, at;
  uint64_t sequence = 0;
  int form;
  fill(in, self->rank, BLOCKS);
  for (r = 0; r < n; ++r) counts[r] = (r + 1) % 3;

  TWICE(gradsync_all_gather, in, out, BLOCK, GRADSYNC_I64, NULL)
  for (r = 0; r < n; ++r)
    for (i = 0; i < BLOCK; ++i) CHECK(out[r * BLOCK + i] == given((int)r, i));
  END_TWICE
  TWICE(gradsync_all_gather_counts, in, out, counts, GRADSYNC_I64, NULL)
  for (r = 0, at = 0; r < n; at += counts[r++])
    for (i = 0; i < counts[r]; ++i) CHECK(out[at + i] == given((int)r, i));
  END_TWICE
  TWICE(gradsync_gather, in, out, BLOCK, GRADSYNC_I64, root, NULL)
  for (r = 0; self->rank == root && r < n; ++r)
    for (i = 0; i < BLOCK; ++i) CHECK(out[r * BLOCK + i] == given((int)r, i));
  END_TWICE
  TWICE(gradsync_gather_counts, in, out, counts, GRADSYNC_I64, root, NULL)
  for (r = 0, at = 0; self->rank == root && r < n; at += counts[r++])
    for (i = 0; i < counts[r]; ++i) CHECK(out[at + i] == given((int)r, i));
  END_TWICE
  TWICE(gradsync_scatter, in, out, BLOCK, GRADSYNC_I64, root, NULL)
  for (i = 0; i < BLOCK; ++i) CHECK(out[i] == given(root, me * BLOCK + i));
  END_TWICE
  TWICE(gradsync_scatter_counts, in, out, counts, GRADSYNC_I64, root, NULL)
  for (r = 0, at = 0; r < me; ++r) at += counts[r];
  for (i = 0; i < counts[me]; ++i) CHECK(out[i] == given(root, at + i));
  END_TWICE
  for (form = 0; form < 2; ++form) {
    memcpy(out, in, sizeof out);
    if (form == 0) {
      OK(gradsync_broadcast(self->comm, out, BLOCK, GRADSYNC_I64, root, NULL));
    } else {
      gradsync_work* work = NULL;
      OK(gradsync_broadcast_async(self->comm, out, BLOCK, GRADSYNC_I64, root, NULL, &work));
      finish(work, &sequence);
    }
    for (i = 0; i < BLOCK; ++i) CHECK(out[i] == given(root, i));
  }
  return NULL;
}

static void* exchanges(void* argument) {
  const rank_of_world* self = argument;
  const size_t me = (size_t)self->rank, n = (size_t)self->size;
  const int next = (self->rank + 1) % self->size, previous = (self->rank + self->size - 1) % self->size;
  int64_t in[BLOCKS], out[BLOCKS];
  size_t sent[RANKS_MAX], got[RANKS_MAX], i, r, at;
  uint64_t sequence = 0;
  int form;
  gradsync_work *sending = NULL, *barrier = NULL;
  fill(in, self->rank, BLOCKS);

  TWICE(gradsync_all_to_all, in, out, BLOCK, GRADSYNC_I64, NULL)
  for (r = 0; r < n; ++r)
    for (i = 0; i < BLOCK; ++i) CHECK(out[r * BLOCK + i] == given((int)r, me * BLOCK + i));
  END_TWICE
  for (r = 0; r < n; ++r) { /* rank a sends b + 1 elements to rank b */
    sent[r] = r + 1;
    got[r] = me + 1;
  }
  TWICE(gradsync_all_to_all_counts, in, out, sent, got, GRADSYNC_I64, NULL)
  for (r = 0; r < n; ++r)
    for (i = 0, at = me * (me + 1) / 2; i < got[r]; ++i) CHECK(out[r * (me + 1) + i] == given((int)r, at + i));
  END_TWICE

  OK(gradsync_barrier(self->comm, NULL));
  OK(gradsync_barrier_async(self->comm, NULL, &barrier));
  finish(barrier, &sequence);
  if (n == 1) return NULL;
  for (form = 0; form < 2; ++form) { /* round the ring */
    memset(out, 0x5a, sizeof out);
    OK(gradsync_send_async(self->comm, in, BLOCK, GRADSYNC_I64, next, NULL, &sending));
    if (form == 0) {
      OK(gradsync_recv(self->comm, out, BLOCK, GRADSYNC_I64, previous, NULL, NULL));
    } else {
      gradsync_work* receiving = NULL;
      OK(gradsync_recv_async(self->comm, out, BLOCK, GRADSYNC_I64, previous, NULL, &receiving));
      OK(gradsync_work_wait(receiving));
      OK(gradsync_work_free(receiving));
    }
    OK(gradsync_work_wait(sending));
    OK(gradsync_work_free(sending));
    for (i = 0; i < BLOCK; ++i) CHECK(out[i] == given(previous, i));
  }
  if (self->rank == 0) OK(gradsync_send(self->comm, in, 1, GRADSYNC_I64, 1, NULL));
  if (self->rank == 1) OK(gradsync_recv(self->comm, out, 1, GRADSYNC_I64, 0, NULL, NULL));
  if (self->rank == 1) CHECK(out[0] == given(0, 0));
  return NULL;
}

/* The sum of ones is the size, in every element type, written here by hand. */
static void* every_type(void* argument) {
  const rank_of_world* self = argument;
  static const uint16_t f16[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500},
                        bf16[] = {0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0};
  const int n = self->size;
  gradsync_dtype dtype;
  for (dtype = GRADSYNC_F16; dtype <= GRADSYNC_BOOL; ++dtype) {
    union {
      uint16_t u16;
      float f32;
      double f64;
      uint8_t u8;
      uint32_t u32;
      uint64_t u64;
    } one, expected;
    memset(&one, 0, sizeof one);
    memset(&expected, 0, sizeof expected);
    switch (dtype) {
      case GRADSYNC_F16: one.u16 = f16[1], expected.u16 = f16[n]; break;
      case GRADSYNC_BF16: one.u16 = bf16[1], expected.u16 = bf16[n]; break;
      case GRADSYNC_F32: one.f32 = 1, expected.f32 = (float)n; break;
      case GRADSYNC_F64: one.f64 = 1, expected.f64 = n; break;
      case GRADSYNC_BOOL: one.u8 = expected.u8 = 1; break;
      case GRADSYNC_I8:
      case GRADSYNC_U8: one.u8 = 1, expected.u8 = (uint8_t)n; break;
      case GRADSYNC_I32:
      case GRADSYNC_U32: one.u32 = 1, expected.u32 = (uint32_t)n; break;
      default: one.u64 = 1, expected.u64 = (uint64_t)n; break;
    }
    OK(gradsync_all_reduce(self->comm, &one, &one, 1, dtype, GRADSYNC_SUM, NULL));
    CHECK(memcmp(&one, &expected, gradsync_dtype_bytes(dtype)) == 0);
  }
  return NULL;
}

static void wait_in_slices(gradsync_work* work) {
  int done = 0;
  while (!done) OK(gradsync_work_wait_for(work, 100000, &done)); /* its deadline ends it */
}

/* Every algorithm of all-reduce, as a value with checked lengths, with a deadline of its own. */
static void* as_a_value(void* argument) {
  const rank_of_world* self = argument;
  gradsync_call_options options = GRADSYNC_CALL_OPTIONS_INIT;
  gradsync_algorithm algorithm;
  options.timeout_ns = 10000000000;
  for (algorithm = GRADSYNC_ALGORITHM_AUTO; algorithm < GRADSYNC_ALGORITHM_DIRECT; ++algorithm) {
    float in[BLOCK] = {1, 2, 3}, out[BLOCK] = {0};
    gradsync_call call;
    gradsync_work* work = NULL;
    uint64_t sequence = 0;
    memset(&call, 0, sizeof call);
    call.struct_size = sizeof call;
    call.collective = GRADSYNC_ALL_REDUCE;
    call.op = GRADSYNC_AVG;
    call.input.data = in;
    call.output.data = out;
    call.input.count = call.output.count = BLOCK;
    call.input.dtype = call.output.dtype = GRADSYNC_F32;
    call.options = &options;
    options.algorithm = algorithm;
    OK(gradsync_run(self->comm, &call));
    CHECK(memcmp(in, out, sizeof in) == 0); /* the mean of equal values */
    memset(out, 0, sizeof out);
    options.flags = GRADSYNC_MOVED_BY_WAITER;
    OK(gradsync_start(self->comm, &call, &work));
    wait_in_slices(work);
    finish(work, &sequence);
    options.flags = 0;
    CHECK(memcmp(in, out, sizeof in) == 0);
    call.output.count = BLOCK - 1;
    FAILS(gradsync_run(self->comm, &call), GRADSYNC_INVALID_ARGUMENT, "the output holds 6 elements, expected 7");
  }
  return NULL;
}

int main(void) {
  int size;
  for (size = 1; size <= 5; ++size) {
    on_every_rank(size, reductions);
    on_every_rank(size, copies);
    on_every_rank(size, exchanges);
    on_every_rank(size, every_type);
    on_every_rank(size, as_a_value);
  }
  puts("ok");
  return 0;
}
