/* The header needs no other, may be included twice, and its initial values have every member. */
#include "gradsync/gradsync.h"

#include "gradsync/gradsync.h"

gradsync_options header_test_options = GRADSYNC_OPTIONS_INIT;
gradsync_call_options header_test_call_options = GRADSYNC_CALL_OPTIONS_INIT;
gradsync_counters header_test_counters = GRADSYNC_COUNTERS_INIT;
