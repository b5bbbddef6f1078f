// Every public header compiles on its own terms outside the tree, functions of the library are there, and its exception is
// caught across the shared object.
#include <gradsync/gradsync.hpp>

#include <cstdio>

int main() {
  if (gradsync::dtype_named("bf16") != gradsync::DType::bf16) return 1;
  if (gradsync::size_of(gradsync::DType::f64) != 8) return 2;
  try {
    throw gradsync::Error(gradsync::Status{gradsync::ErrorCode::timeout, 3, "recv from rank 3"});
  } catch (const gradsync::Error& error) {
    if (error.peer() != 3) return 3;
    std::printf("%s: %s\n", std::string(gradsync::name_of(error.code())).c_str(), error.what());
  }
  return 0;
}
