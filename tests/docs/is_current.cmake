# Fails unless PAGE is what `TOOL prove --markdown` prints.
execute_process(COMMAND ${TOOL} prove --markdown OUTPUT_VARIABLE printed RESULT_VARIABLE code TIMEOUT 100)
file(READ ${PAGE} kept)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "prove --markdown ended with ${code}")
endif()
if(NOT printed STREQUAL kept)
  message(FATAL_ERROR "${PAGE} is out of date: gradsync prove --markdown > docs/algorithms.md")
endif()
