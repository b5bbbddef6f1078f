/* What communicators, works and memory answer, and what their handles do when they are used too late. */
#define _POSIX_C_SOURCE 200809L
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"

static void* answers(void* argument) {
  const rank_of_world* self = argument;
  gradsync_counters counters = GRADSYNC_COUNTERS_INIT;
  uint32_t hosts[RANKS_MAX] = {9, 9, 9};
  char text[128], cut[5];
  size_t length = 0;
  int number = -1;
  uint64_t more[12] = {64, 0};
  OK(gradsync_rank(self->comm, &number));
  CHECK(number == self->rank);
  OK(gradsync_size(self->comm, &number));
  CHECK(number == self->size);
  OK(gradsync_status(self->comm));
  OK(gradsync_hosts(self->comm, hosts, RANKS_MAX));
  CHECK(hosts[0] == 0 && hosts[self->size - 1] == 0);
  OK(gradsync_describe(self->comm, 1, text, sizeof text, &length));
  CHECK(length == strlen(text) && strstr(text, "rank 1") != NULL);
  OK(gradsync_describe(self->comm, 1, cut, sizeof cut, NULL));
  CHECK(strcmp(cut, "rank") == 0);
  OK(gradsync_describe(self->comm, 1, NULL, 0, &length));
  OK(gradsync_barrier(self->comm, NULL));
  OK(gradsync_get_counters(self->comm, &counters));
  CHECK(counters.operations >= 1 && counters.messages_sent >= 1);
  more[0] = 16; /* a caller that knows one counter gets one */
  more[1] = more[2] = 77;
  OK(gradsync_get_counters(self->comm, (gradsync_counters*)(void*)more));
  CHECK(more[0] == 16 && more[1] >= 1 && more[2] == 77);
  OK(gradsync_tune(self->comm));
  return NULL;
}

static void* parts(void* argument) {
  const rank_of_world* self = argument;
  const int ends[2] = {2, 0};
  gradsync_comm *part = NULL, *none = self->comm;
  int32_t value = self->rank;
  int rank = -1;
  OK(gradsync_split(self->comm, self->rank == 1 ? -1 : 5, -self->rank, &part));
  CHECK((part == NULL) == (self->rank == 1));
  if (self->rank != 1) {
    OK(gradsync_rank(part, &rank)); /* ordered by key: rank 2 comes first */
    CHECK(rank == (self->rank == 2 ? 0 : 1));
    OK(gradsync_all_reduce(part, &value, &value, 1, GRADSYNC_I32, GRADSYNC_SUM, NULL));
    CHECK(value == 2);
    OK(gradsync_destroy(part));
    OK(gradsync_group(self->comm, ends, 2, &part));
    OK(gradsync_broadcast(part, &value, 1, GRADSYNC_I32, 0, NULL));
    OK(gradsync_destroy(part));
  }
  OK(gradsync_split(self->comm, -1, 0, &none));
  CHECK(none == NULL);
  return NULL;
}

static void* memory(void* argument) {
  const rank_of_world* self = argument;
  enum { COUNT = 100000 };
  gradsync_memory* memory = NULL;
  void* data = NULL;
  float* values;
  OK(gradsync_allocate(self->comm, COUNT * sizeof(float), &memory, &data));
  values = data;
  CHECK(values[0] == 0 && values[COUNT - 1] == 0);
  values[COUNT - 1] = 2;
  OK(gradsync_all_reduce(self->comm, values, values, COUNT, GRADSYNC_F32, GRADSYNC_SUM, NULL));
  CHECK(values[COUNT - 1] == 2.0f * (float)self->size);
  OK(gradsync_memory_free(memory));
  FAILS(gradsync_memory_free(memory), GRADSYNC_CLOSED, "gradsync_memory_free: the memory was freed before");
  OK(gradsync_memory_free(NULL));
  return NULL;
}

/* Rank 0 never comes to the barrier: the others wait until rank 1 aborts, and all hear why. */
static void* abortion(void* argument) {
  const rank_of_world* self = argument;
  gradsync_work* work = NULL;
  int done = 1;
  if (self->rank == 2) {
    FAILS(gradsync_barrier(self->comm, NULL), GRADSYNC_ABORTED, "out of patience");
    return NULL;
  }
  if (self->rank == 0) {
    OK(gradsync_recv_async(self->comm, &done, 1, GRADSYNC_I32, 1, NULL, &work));
  } else {
    OK(gradsync_barrier_async(self->comm, NULL, &work));
    OK(gradsync_work_wait_for(work, 1000, &done));
    CHECK(done == 0);
    OK(gradsync_work_status(work));
    OK(gradsync_abort(self->comm, "out of patience"));
  }
  FAILS(gradsync_work_wait(work), GRADSYNC_ABORTED, "out of patience");
  CHECK(gradsync_error_peer() == 1);
  FAILS(gradsync_status(self->comm), GRADSYNC_ABORTED, "out of patience");
  OK(gradsync_work_free(work));
  FAILS(gradsync_work_free(work), GRADSYNC_CLOSED, "the work was freed before");
  FAILS(gradsync_work_wait(work), GRADSYNC_CLOSED, "the work was freed before");
  return NULL;
}

/* A world of one, since no environment says otherwise; destroyed with an operation under way. */
static void too_late(void) {
  gradsync_comm* comms[2];
  gradsync_work* work = NULL;
  int value = 0, rank = 5;
  OK(gradsync_threads(2, NULL, comms));
  OK(gradsync_recv_async(comms[0], &value, 1, GRADSYNC_I32, 1, NULL, &work));
  OK(gradsync_destroy(comms[0]));
  FAILS(gradsync_work_wait(work), GRADSYNC_CLOSED, "destroyed");
  OK(gradsync_work_free(work));
  FAILS(gradsync_destroy(comms[0]), GRADSYNC_CLOSED, "gradsync_destroy: the communicator was destroyed before");
  FAILS(gradsync_rank(comms[0], &rank), GRADSYNC_CLOSED, "the communicator was destroyed before");
  CHECK(rank == 5); /* untouched */
  FAILS(gradsync_barrier(comms[0], NULL), GRADSYNC_CLOSED, "gradsync_barrier: the communicator was destroyed before");
  FAILS(gradsync_barrier((gradsync_comm*)(void*)work, NULL), GRADSYNC_INVALID_ARGUMENT,
        "the handle is of a work, expected a communicator");
  FAILS(gradsync_barrier((gradsync_comm*)(void*)&value, NULL), GRADSYNC_INVALID_ARGUMENT,
        "is not a handle of gradsync");
  OK(gradsync_destroy(comms[1]));
  OK(gradsync_destroy(NULL));
  OK(gradsync_work_free(NULL));
}

/* A forked child has no part in its parent's group, may make its own, and its exit harms nobody. */
static void forked_child(void) {
  gradsync_comm *comms[2], *own = NULL;
  int status = 0;
  pid_t child;
  OK(gradsync_threads(2, NULL, comms));
  child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(20);
    FAILS(gradsync_barrier(comms[0], NULL), GRADSYNC_CLOSED, "the communicator is of the parent process");
    FAILS(gradsync_destroy(comms[0]), GRADSYNC_CLOSED, "the communicator is of the parent process");
    OK(gradsync_threads(1, NULL, &own));
    CHECK(own != comms[0] && own != comms[1]);
    OK(gradsync_barrier(own, NULL));
    OK(gradsync_destroy(own));
    exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  OK(gradsync_status(comms[0]));
  OK(gradsync_destroy(comms[0]));
  OK(gradsync_destroy(comms[1]));
}

int main(void) {
  alarm(100);
  on_every_rank(3, answers);
  on_every_rank(3, parts);
  on_every_rank(2, memory);
  on_every_rank(3, abortion);
  too_late();
  forked_child();
  puts("ok");
  return 0;
}
