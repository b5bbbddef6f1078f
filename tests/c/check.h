/* Checks of the C tests. */
#ifndef GRADSYNC_TESTS_C_CHECK_H
#define GRADSYNC_TESTS_C_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradsync/gradsync.h"

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: %s does not hold; last error: %s\n", __FILE__, __LINE__, #condition, \
              gradsync_error_message());                                                           \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

/* The call gives this code and leaves a message that holds this text. */
#define FAILS(call, expected, text)                                                                            \
  do {                                                                                                         \
    const gradsync_code found_ = (call);                                                                       \
    if (found_ != (expected) || (found_ != GRADSYNC_OK && strstr(gradsync_error_message(), (text)) == NULL) || \
        (found_ != GRADSYNC_OK && gradsync_error_code() != found_)) {                                          \
      fprintf(stderr, "%s:%d: %s\n  gave %s '%s'\n  expected %s '%s'\n", __FILE__, __LINE__, #call,            \
              gradsync_code_name(found_), gradsync_error_message(), gradsync_code_name(expected), (text));     \
      exit(1);                                                                                                 \
    }                                                                                                          \
  } while (0)
#define OK(call) FAILS(call, GRADSYNC_OK, "")

#endif
