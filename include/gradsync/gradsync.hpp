#pragma once
// Everything public.
#include "gradsync/communicator.hpp"
#include "gradsync/counters.hpp"
#include "gradsync/error.hpp"
#include "gradsync/gradient_sync.hpp"
#include "gradsync/options.hpp"
#include "gradsync/store.hpp"
#include "gradsync/types.hpp"
