# baton-engine. Modules below the scheduler need no agent; the rest is tested
# over an agent library inside the test's process.
add_library(fake_agent STATIC fake_agent.c)
target_link_libraries(fake_agent
    PUBLIC baton_flags bt_base PRIVATE PkgConfig::JANSSON)
target_include_directories(fake_agent
    PUBLIC ${PROJECT_SOURCE_DIR}/agent/include)

foreach(module model kv context engine_fault engine_options engine_request stock
        meter sched api)
  if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/test_${module}.c)
    baton_unit(test_${module} LIBS baton_engine_core fake_agent)
  endif()
endforeach()
