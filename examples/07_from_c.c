/* The same from C: the mean of all ranks' gradients, begun before it is needed.
 *
 *   gradsync run -n 4 -- build/examples/07_from_c
 */
#include <stdio.h>

#include "gradsync/gradsync.h"

enum { COUNT = 100000 };
static float gradients[COUNT];

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, gradsync_error_message()); /* names the operation, the peer and the cause */
  return 1;
}

int main(void) {
  gradsync_comm* comm = NULL;
  gradsync_work* work = NULL;
  int rank = 0, size = 0, i;
  float mean;
  if (gradsync_create(NULL, &comm) != GRADSYNC_OK) return failed("create"); /* as the environment says */
  if (gradsync_rank(comm, &rank) != GRADSYNC_OK || gradsync_size(comm, &size) != GRADSYNC_OK) return failed("rank");

  for (i = 0; i < COUNT; ++i) gradients[i] = (float)rank;
  if (gradsync_all_reduce_async(comm, gradients, gradients, COUNT, GRADSYNC_F32, GRADSYNC_AVG, NULL, &work) !=
      GRADSYNC_OK)
    return failed("all_reduce");
  /* … other work; `gradients` are the library's until then … */
  if (gradsync_work_wait(work) != GRADSYNC_OK) return failed("all_reduce");
  gradsync_work_free(work);

  mean = (float)(size - 1) / 2;
  if (gradients[COUNT - 1] != mean) return printf("wrong: %g, expected %g\n", gradients[COUNT - 1], mean), 1;
  printf("rank %d: ok\n", rank);
  return gradsync_destroy(comm) != GRADSYNC_OK;
}
