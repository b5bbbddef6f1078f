/* Ranks meet in a store of functions of C. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <time.h>

#include "check.h"

enum { KEYS_MAX = 64, RANKS = 3 };

typedef struct entry {
  char key[128];
  char* value;
  size_t bytes;
  int64_t number;
} entry;
typedef struct shelf {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  entry entries[KEYS_MAX];
  size_t count;
  gradsync_code answer; /* of set */
} shelf;

static entry* find(shelf* self, const char* key, int create) {
  size_t i;
  for (i = 0; i < self->count; ++i)
    if (strcmp(self->entries[i].key, key) == 0) return &self->entries[i];
  if (!create) return NULL;
  CHECK(self->count < KEYS_MAX && strlen(key) < sizeof self->entries[0].key);
  strcpy(self->entries[self->count].key, key);
  return &self->entries[self->count++];
}

static gradsync_code set(void* context, const char* key, const void* value, size_t bytes) {
  shelf* self = context;
  entry* at;
  if (self->answer != GRADSYNC_OK) return self->answer;
  CHECK(pthread_mutex_lock(&self->mutex) == 0);
  at = find(self, key, 1);
  at->value = realloc(at->value, bytes + 1);
  CHECK(at->value != NULL);
  memcpy(at->value, value, bytes);
  at->bytes = bytes;
  CHECK(pthread_cond_broadcast(&self->changed) == 0);
  CHECK(pthread_mutex_unlock(&self->mutex) == 0);
  return GRADSYNC_OK;
}

static gradsync_code get(void* context, const char* key, int64_t timeout_ns, gradsync_bytes* value) {
  shelf* self = context;
  struct timespec until;
  gradsync_code code = GRADSYNC_OK;
  entry* at = NULL;
  CHECK(timeout_ns > 0 && clock_gettime(CLOCK_REALTIME, &until) == 0);
  until.tv_sec += (time_t)(timeout_ns / 1000000000);
  until.tv_nsec += (long)(timeout_ns % 1000000000);
  if (until.tv_nsec >= 1000000000) ++until.tv_sec, until.tv_nsec -= 1000000000;
  CHECK(pthread_mutex_lock(&self->mutex) == 0);
  while (code == GRADSYNC_OK && ((at = find(self, key, 0)) == NULL || at->value == NULL))
    if (pthread_cond_timedwait(&self->changed, &self->mutex, &until) != 0) code = GRADSYNC_TIMEOUT;
  if (code == GRADSYNC_OK) code = gradsync_bytes_assign(value, at->value, at->bytes);
  CHECK(pthread_mutex_unlock(&self->mutex) == 0);
  return code;
}

static gradsync_code add(void* context, const char* key, int64_t amount, int64_t* sum) {
  shelf* self = context;
  CHECK(pthread_mutex_lock(&self->mutex) == 0);
  *sum = find(self, key, 1)->number += amount;
  CHECK(pthread_mutex_unlock(&self->mutex) == 0);
  return GRADSYNC_OK;
}

static shelf shared = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {{{0}, NULL, 0, 0}}, 0, GRADSYNC_OK};
static gradsync_store store;

static void* rank(void* argument) {
  gradsync_options options = GRADSYNC_OPTIONS_INIT;
  gradsync_comm* comm = NULL;
  int32_t value = 1;
  options.rank = *(const int*)argument;
  options.size = RANKS;
  options.store = &store;
  options.start_timeout_ns = options.timeout_ns = 20000000000;
  OK(gradsync_create(&options, &comm));
  OK(gradsync_all_reduce(comm, &value, &value, 1, GRADSYNC_I32, GRADSYNC_SUM, NULL));
  CHECK(value == RANKS);
  OK(gradsync_destroy(comm));
  return NULL;
}

static void failures(void) {
  gradsync_options options = GRADSYNC_OPTIONS_INIT;
  gradsync_comm* comm = NULL;
  gradsync_store broken = store;
  shelf empty = shared;
  empty.count = 0;
  empty.answer = GRADSYNC_INTERNAL;
  memset(empty.entries, 0, sizeof empty.entries);
  options.rank = 0;
  options.size = 2;
  options.start_timeout_ns = 20000000000;
  options.store = &broken;
  broken.context = &empty;
  FAILS(gradsync_create(&options, &comm), GRADSYNC_UNAVAILABLE, "returned internal");
  broken.get = NULL;
  FAILS(gradsync_create(&options, &comm), GRADSYNC_INVALID_ARGUMENT, "gradsync_store.get is null");
  broken.struct_size = 3;
  FAILS(gradsync_create(&options, &comm), GRADSYNC_INVALID_ARGUMENT, "gradsync_store.struct_size is 3");
  FAILS(gradsync_bytes_assign(NULL, "x", 1), GRADSYNC_INVALID_ARGUMENT, "the value is null");
  broken = store;
  options.rendezvous = "file:///nonexistent";
  FAILS(gradsync_create(&options, &comm), GRADSYNC_INVALID_ARGUMENT, "rendezvous");
}

int main(void) {
  pthread_t threads[RANKS];
  int numbers[RANKS], r;
  size_t i;
  store.struct_size = sizeof store;
  store.context = &shared;
  store.set = set;
  store.get = get;
  store.add = add;
  for (r = 0; r < RANKS; ++r) {
    numbers[r] = r;
    CHECK(pthread_create(&threads[r], NULL, rank, &numbers[r]) == 0);
  }
  for (r = 0; r < RANKS; ++r) CHECK(pthread_join(threads[r], NULL) == 0);
  failures();
  for (i = 0; i < shared.count; ++i) free(shared.entries[i].value);
  puts("ok");
  return 0;
}
