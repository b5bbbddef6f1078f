/* Tags, and messages of whoever sent one. */
#include "ranks.h"

static void* tags(void* argument) {
  const rank_of_world* self = argument;
  gradsync_call_options first = GRADSYNC_CALL_OPTIONS_INIT, second = GRADSYNC_CALL_OPTIONS_INIT;
  int32_t value = 0;
  int source = -7;
  first.tag = 1;
  second.tag = 2;
  if (self->rank == 0) {
    value = 10;
    OK(gradsync_send(self->comm, &value, 1, GRADSYNC_I32, 1, &first));
    value = 20;
    OK(gradsync_send(self->comm, &value, 1, GRADSYNC_I32, 1, &second));
  } else if (self->rank == 1) { /* the other way round */
    OK(gradsync_recv(self->comm, &value, 1, GRADSYNC_I32, 0, &source, &second));
    CHECK(value == 20 && source == 0);
    OK(gradsync_recv(self->comm, &value, 1, GRADSYNC_I32, 0, NULL, &first));
    CHECK(value == 10);
  }
  FAILS(gradsync_barrier(self->comm, &first), GRADSYNC_INVALID_ARGUMENT, "tag");
  OK(gradsync_barrier(self->comm, NULL));
  return NULL;
}

/* Rank 0 hears everyone once, in the order in which they come. */
static void* any_rank(void* argument) {
  const rank_of_world* self = argument;
  int32_t value = 100 + self->rank, heard[RANKS_MAX] = {0};
  int source = -7, i;
  if (self->rank != 0) {
    OK(gradsync_send(self->comm, &value, 1, GRADSYNC_I32, 0, NULL));
    return NULL;
  }
  for (i = 1; i < self->size; ++i) {
    if (i % 2 == 1) {
      OK(gradsync_recv(self->comm, &value, 1, GRADSYNC_I32, GRADSYNC_ANY_RANK, &source, NULL));
    } else {
      gradsync_work* work = NULL;
      OK(gradsync_recv_async(self->comm, &value, 1, GRADSYNC_I32, GRADSYNC_ANY_RANK, NULL, &work));
      OK(gradsync_work_wait(work));
      OK(gradsync_work_source(work, &source));
      OK(gradsync_work_free(work));
    }
    CHECK(source > 0 && source < self->size && value == 100 + source && heard[source] == 0);
    heard[source] = 1;
  }
  return NULL;
}

int main(void) {
  on_every_rank(2, tags);
  on_every_rank(5, any_rank);
  puts("ok");
  return 0;
}
