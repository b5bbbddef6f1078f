#include "c/numbers.hpp"

#include <optional>
#include <string_view>

namespace gradsync::c {
namespace {

static_assert(GRADSYNC_NOT_FINITE + 1 == kErrorCodeCount && GRADSYNC_CLOSED == static_cast<int>(ErrorCode::closed));
static_assert(GRADSYNC_BOOL + 1 == kDTypeCount && GRADSYNC_U8 == static_cast<int>(DType::u8));
static_assert(GRADSYNC_BIT_XOR + 1 == kReduceOpCount && GRADSYNC_MAX == static_cast<int>(ReduceOp::max));
static_assert(GRADSYNC_RECV + 1 == kCollectiveCount && GRADSYNC_GATHER == static_cast<int>(Collective::gather));
static_assert(GRADSYNC_ALGORITHM_DIRECT + 1 == kAlgorithmCount &&
              GRADSYNC_ALGORITHM_TWO_SHOT == static_cast<int>(Algorithm::two_shot));
static_assert(GRADSYNC_TRANSPORT_TCP + 1 == kTransportKindCount);

bool within(std::int32_t number, std::size_t count) { return number >= 0 && static_cast<std::size_t>(number) < count; }

template <class Enum>
Enum value_of(std::int32_t number, std::size_t count, const char* what, std::string (*known)()) {
  if (!within(number, count))
    refuse(ErrorCode::invalid_argument, "{} number {} is unknown, numbers from 0 are {}", what, number, known());
  return static_cast<Enum>(number);
}

// The names are literals, which end in a zero.
template <class Enum>
const char* name(std::int32_t number, std::size_t count) {
  return within(number, count) ? name_of(static_cast<Enum>(number)).data() : "unknown";
}

template <class Enum>
gradsync_code named(const char* function, const char* name, std::int32_t* number,
                    std::optional<Enum> (*find)(std::string_view), std::string (*known)()) {
  return guarded(function, [&] {
    require(name, "the name");
    require(number, "the address for the number");
    const std::optional<Enum> value = find(name);
    if (!value) refuse(ErrorCode::invalid_argument, "'{}' is unknown, known are {}", name, known());
    *number = static_cast<std::int32_t>(*value);
  });
}

}  // namespace

DType dtype_of(std::int32_t n) { return value_of<DType>(n, kDTypeCount, "element type", known_dtypes); }
ReduceOp op_of(std::int32_t n) { return value_of<ReduceOp>(n, kReduceOpCount, "operator", known_reduce_ops); }
Collective collective_of(std::int32_t n) {
  return value_of<Collective>(n, kCollectiveCount, "collective", known_collectives);
}
Algorithm algorithm_of(std::int32_t n) {
  return value_of<Algorithm>(n, kAlgorithmCount, "algorithm", known_algorithms);
}
TransportKind transport_of(std::int32_t n) {
  return value_of<TransportKind>(n, kTransportKindCount, "transport", known_transports);
}

}  // namespace gradsync::c

using namespace gradsync;

extern "C" {

#define GRADSYNC_TEXT(x) #x
#define GRADSYNC_DOTTED(major, minor, patch) GRADSYNC_TEXT(major) "." GRADSYNC_TEXT(minor) "." GRADSYNC_TEXT(patch)
static_assert(std::string_view(GRADSYNC_PROJECT_VERSION) ==
                  GRADSYNC_DOTTED(GRADSYNC_VERSION_MAJOR, GRADSYNC_VERSION_MINOR, GRADSYNC_VERSION_PATCH),
              "gradsync.h and the project have different versions");
const char* gradsync_version(void) { return GRADSYNC_PROJECT_VERSION; }

const char* gradsync_code_name(gradsync_code code) { return c::name<ErrorCode>(code, kErrorCodeCount); }
const char* gradsync_dtype_name(gradsync_dtype dtype) { return c::name<DType>(dtype, kDTypeCount); }
const char* gradsync_op_name(gradsync_op op) { return c::name<ReduceOp>(op, kReduceOpCount); }
const char* gradsync_collective_name(gradsync_collective which) { return c::name<Collective>(which, kCollectiveCount); }
const char* gradsync_algorithm_name(gradsync_algorithm which) { return c::name<Algorithm>(which, kAlgorithmCount); }
const char* gradsync_transport_name(gradsync_transport which) {
  return c::name<TransportKind>(which, kTransportKindCount);
}

gradsync_code gradsync_dtype_named(const char* name, gradsync_dtype* dtype) {
  return c::named(__func__, name, dtype, dtype_named, known_dtypes);
}
gradsync_code gradsync_op_named(const char* name, gradsync_op* op) {
  return c::named(__func__, name, op, reduce_op_named, known_reduce_ops);
}
gradsync_code gradsync_algorithm_named(const char* name, gradsync_algorithm* algorithm) {
  return c::named(__func__, name, algorithm, algorithm_named, known_algorithms);
}
gradsync_code gradsync_transport_named(const char* name, gradsync_transport* transport) {
  return c::named(__func__, name, transport, transport_named, known_transports);
}

size_t gradsync_dtype_bytes(gradsync_dtype dtype) {
  return c::within(dtype, kDTypeCount) ? size_of(static_cast<DType>(dtype)) : 0;
}
int gradsync_supports(gradsync_dtype dtype, gradsync_op op) {
  return c::within(dtype, kDTypeCount) && c::within(op, kReduceOpCount) &&
         supports(static_cast<DType>(dtype), static_cast<ReduceOp>(op));
}

}  // extern "C"
