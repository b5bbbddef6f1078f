# BUILD, SOURCE, GENERATOR, COMPILER: see CMakeLists.txt.
cmake_minimum_required(VERSION 3.25)
set(work ${BUILD}/install_test)
set(prefix ${work}/prefix)
file(REMOVE_RECURSE ${work})

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output TIMEOUT 120)
  message("${output}")
  if(NOT code EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "'${command}' ended with ${code}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# The README's first block of that language, as a reader copies it.
function(copy_block_of_readme language into)
  file(READ ${SOURCE}/README.md text)
  string(FIND "${text}" "```${language}\n" start)
  if(start EQUAL -1)
    message(FATAL_ERROR "README.md shows no block of ${language}")
  endif()
  string(LENGTH "```${language}\n" fence)
  math(EXPR start "${start} + ${fence}")
  string(SUBSTRING "${text}" ${start} -1 text)
  string(FIND "${text}" "```" length)
  string(SUBSTRING "${text}" 0 ${length} text)
  file(WRITE ${into} "${text}")
endfunction()

# CMAKE_PREFIX_PATH is all that a project is told.
function(build_project folder)
  run(${CMAKE_COMMAND} -S ${folder} -B ${folder}/build -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER}
    -D CMAKE_PREFIX_PATH=${prefix})
  run(${CMAKE_COMMAND} --build ${folder}/build)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})

file(COPY ${CMAKE_CURRENT_LIST_DIR}/consumer/ DESTINATION ${work}/consumer)
build_project(${work}/consumer)
run(${work}/consumer/build/names)

if(EXISTS ${SOURCE}/src/comm/communicator.cpp AND EXISTS ${prefix}/bin/gradsync)
  copy_block_of_readme(cpp ${work}/readme/program.cpp)
  copy_block_of_readme(cmake ${work}/readme/CMakeLists.txt)
  build_project(${work}/readme)
  run(${prefix}/bin/gradsync run -n 4 --timeout 60 -- ${work}/readme/build/program)
  if(NOT output MATCHES "rank 3 of 4: 1.5")
    message(FATAL_ERROR "the README's program did not print what the README says")
  endif()
endif()
