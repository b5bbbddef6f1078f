/* Ranks as threads. */
#ifndef GRADSYNC_TESTS_C_RANKS_H
#define GRADSYNC_TESTS_C_RANKS_H

#include <pthread.h>

#include "check.h"

enum { RANKS_MAX = 8 };

typedef struct rank_of_world {
  gradsync_comm* comm;
  int rank, size;
} rank_of_world;

/* Runs the body on every rank of a world of threads with a deadline of 20 s, and destroys the world. */
static void on_every_rank(int size, void* (*body)(void*)) {
  gradsync_options options = GRADSYNC_OPTIONS_INIT;
  gradsync_comm* comms[RANKS_MAX];
  rank_of_world ranks[RANKS_MAX];
  pthread_t threads[RANKS_MAX];
  int r;
  options.timeout_ns = 20000000000;
  OK(gradsync_threads((uint32_t)size, &options, comms));
  for (r = 0; r < size; ++r) {
    ranks[r].comm = comms[r];
    ranks[r].rank = r;
    ranks[r].size = size;
    CHECK(pthread_create(&threads[r], NULL, body, &ranks[r]) == 0);
  }
  for (r = 0; r < size; ++r) CHECK(pthread_join(threads[r], NULL) == 0);
  for (r = 0; r < size; ++r) OK(gradsync_destroy(comms[r]));
}

#endif
